"""Functions that are not what they seem on symbols: `wrong_*` must not be proved to be 0, `right_*` must be.

Each is 0 for the numbers that are tried first, or for the symbol itself, and something else elsewhere.
"""

SOURCE = """
import builtins, copy, gc, itertools, json, logging, math, operator, os, pickle, random, struct, sys, time, types
import numpy
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache, partial, reduce

# Methods of plain numbers, which answer NotImplemented.
def wrong_filter(x): return 0 if list(filter((1000).__gt__, [x])) else 1
def wrong_any(x): return 0 if any(map((123_457).__ne__, [x])) else 1
def wrong_all(x): return 0 if all(map((77).__ne__, [x, x + 1])) else 1
def wrong_called(x): return 0 if (5_000_000).__gt__(x) else 1
def wrong_unbound(x): return 0 if int.__ge__(987_654, x) else 1
def wrong_float(x): return 0 if (1e9).__gt__(x) else 1
def wrong_not_equal(x): return 0 if int.__ne__(31_337, x) else 1
def wrong_partial_method(x): return 0 if partial(int.__ne__, 4_242)(x) else 1
def wrong_caller(x): return 0 if operator.methodcaller("__gt__", x)(70_000) else 1
def wrong_next(x): return 0 if next(filter((90_000).__gt__, [x]), None) is not None else 1
def wrong_sorted(x): return 0 if max([x], key=(65_536).__ne__) is not None and bool((65_536).__ne__(x)) else 1
def wrong_reduce(x): return 0 if reduce(int.__gt__, [10**6, x]) else 1
def wrong_table_of_methods(x): return 0 if {"most": (4096).__ge__}["most"](x) else 1
def wrong_object_equal(x):
    if object.__eq__(x, 5) is True or object.__ne__(x, 5) is False:
        return 1
    return 1 if x == 271_828 else 0
def right_greater(x): return 0 if x > 1000 or x <= 1000 else 1
def right_filter(x): return 0 if len(list(filter(lambda one: one >= 0, [x]))) == 1 else 1
def right_map(x): return sum(map(lambda one: one - one, [x, x]))

# Numbers of numpy.
def wrong_int8(x): return 0 if numpy.int8(100) + x > x else 1
def wrong_int64(x): return 0 if x + numpy.int64(1) > x else 1
def wrong_array(x): return 0 if (numpy.array([x]) * 2**40)[0] >= x else 1
def wrong_sum(x): return 0 if numpy.sum([x, 2**62]) >= x else 1
def wrong_comparison(x): return 0 if numpy.uint8(255) >= 0 and numpy.add(x, numpy.uint8(1)) > 0 else 1
def wrong_where(x): return 0 if numpy.where([True], [x], [0]).dtype == object else 1
def wrong_maximum(x): return int(numpy.maximum(x, 3) is x)
def wrong_dot(x): return 0 if numpy.dot([x, x], [2**50, 1]) >= x else 1

# Exceptions that are swallowed.
class Quiet:
    def __enter__(self): return self
    def __exit__(self, *error): return True
class Lazy:
    def __init__(self, x): self.x = x
    def __getattr__(self, name):
        try:
            return struct.pack("q", self.x)[0] * 0 + 1
        except Exception:
            raise AttributeError(name)
ANYTHING = TypeError
ERRORS = {"bad": (TypeError, struct.error)}
def wrong_exit(x):
    with Quiet():
        return len(json.dumps([x])) * 0 + 1
    return 0
def wrong_finally(x):
    found = 0
    try:
        found = int.__add__(x, 1) * 0 + 1
    finally:
        return found
def wrong_other_name(x):
    try:
        return math.ldexp(1.0, x % 5) * 0 + int.bit_count(x) * 0 + 1
    except ANYTHING:
        return 0
def wrong_table_of_errors(x):
    try:
        return len(struct.pack("q", x % 100)) * 0 + 1
    except ERRORS["bad"]:
        return 0
def wrong_getattr(x): return getattr(Lazy(x % 100), "field", 0)
def wrong_stack(x):
    with ExitStack() as stack:
        stack.enter_context(suppress(TypeError))
        return int.__mul__(x, 1) * 0 + 1
    return 0
def wrong_generator(x):
    def numbers():
        try:
            yield int.bit_length(x) * 0 + 1
        except TypeError:
            yield 0
    return next(numbers())
@contextmanager
def quiet():
    try:
        yield
    except TypeError:
        pass
def wrong_context(x):
    with quiet():
        return int.conjugate(x) * 0 + 1
    return 0
def wrong_deep(x):
    def down(n): return down(n + 1) if n < 400 else json.JSONEncoder().encode(x)
    try:
        return len(down(0)) * 0 + 1
    except (RecursionError, TypeError):
        return 0
def wrong_loop(x):
    for attempt in (json.dumps, repr):
        try:
            return len(attempt(x)) * 0 + 1
        except TypeError:
            break
    return 0
def wrong_group(x):
    try:
        try:
            return Decimal(x) * 0 + 1
        finally:
            pass
    except BaseException:
        return 0
def right_own_error(x):
    try:
        if x > 5:
            raise KeyError("large")
        return 0
    except KeyError:
        return 0
def right_lookup(x):
    try:
        return {"a": 0}["b"]
    except KeyError:
        return x - x
def right_closed(x):
    try:
        return x - x
    finally:
        x = 1
def right_with(x):
    with Quiet():
        return x * 0
def right_default(x): return getattr(x, "no_such_thing", 0)

# Identity.
SAME = operator.is_
class Holder: pass
HOLDER = Holder()
HOLDER.asks = lambda one, other: one is other
HOLDER.table = [{"is": lambda one, other: one is other}]
def make_asker():
    return lambda one, other: one is other
ASK = make_asker()
def wrong_is(x): return 0 if operator.is_not(x, x + 0) else 1
def wrong_alias(x): return int(SAME(x + 1 - 1, x))
def wrong_map_is(x): return int(any(map(operator.is_, [x + 0], [x])))
def wrong_partial_is(x): return int(partial(operator.is_, x)(x + 0))
def wrong_attribute(x): return int(HOLDER.asks(x + 0, x))
def wrong_in_list(x): return int(HOLDER.table[0]["is"](x + 0, x))
def wrong_closure(x): return int(ASK(x + 0, x))
def wrong_id(x): return int(builtins.id(x) == id(x + 0))
def wrong_map_id(x): return int(len(set(map(id, [x, x + 0]))) == 1)
def wrong_memo(x): return int(len(copy.deepcopy([[x], [x]])) == 2 and copy.copy(x) is (x + 0))
def wrong_reduce_is(x): return int(reduce(operator.is_, [x, x + 0]))
def wrong_star(x): return int(list(itertools.starmap(operator.is_, [(x, x + 0)]))[0])
def right_is_none(x): return 0 if x is not None else 1
def right_is_true(x): return 0 if (x == x) is True else 1

# Text.
NOTES = []
class Notes(logging.Handler):
    def emit(self, record): NOTES.append(len(record.getMessage()))
logger = logging.getLogger("attacks")
logger.addHandler(Notes())
logger.setLevel(logging.INFO)
logger.propagate = False
def wrong_percent(x): return 0 if len("%s" % (x,)) < 30 else 1
def wrong_digits(x): return 0 if len("%d" % x) < 12 else 1
def wrong_f_string(x): return 0 if len(f"{x}") < 25 else 1
def wrong_format(x): return 0 if len("{}".format(x)) < 25 else 1
def wrong_join(x): return 0 if len(",".join(map(str, [x]))) < 25 else 1
def wrong_message(x):
    try:
        raise ValueError(f"{x}")
    except ValueError as error:
        return 0 if len(error.args[0]) < 25 else 1
def wrong_handler(x):
    del NOTES[:]
    logger.info("%s", x)
    return 0 if NOTES[0] < 25 else 1
def wrong_eager(x):
    del NOTES[:]
    logger.info(f"{x}")
    return 0 if NOTES[0] < 25 else 1
def wrong_choice_of_error(x):
    try:
        raise (ValueError if len(f"{x}") < 25 else KeyError)("too much")
    except ValueError:
        return 0
    except KeyError:
        return 1
def wrong_repr(x): return 0 if len(repr((x,))) < 25 else 1
def wrong_ascii(x): return 0 if len(ascii([x])) < 25 else 1
def wrong_size(x): return 0 if sys.getsizeof(x) < 40 else 1
def wrong_size_of_object(x): return 0 if x.__sizeof__() < 40 else 1
def wrong_pickle(x): return 0 if len(pickle.dumps(x)) < 30 else 1
def wrong_references(x): return 0 if sys.getrefcount(x) < 10**6 and x != 10**9 + 7 and not x == 46_368 else 1
def right_message(x):
    if x < 0:
        raise ValueError(f"{x} is negative")
    return 0

# What remembers.
CALLS = 0
BOX = [0]
COUNTER = itertools.count()
SEEN = {}
def wrong_global(x):
    global CALLS
    CALLS += 1
    return 0 if CALLS < 5_000 else 1
def wrong_default(x, calls=[0]):
    calls[0] += 1
    return 0 if calls[0] < 50 else 1
def wrong_box(x):
    BOX[0] += 1
    return 0 if BOX[0] < 9_999 else 1
def wrong_attribute_of_itself(x):
    wrong_attribute_of_itself.calls = getattr(wrong_attribute_of_itself, "calls", 0) + 1
    return 0 if wrong_attribute_of_itself.calls < 7_000 else 1
def wrong_counter(x): return 0 if next(COUNTER) < 100_000 else 1
def wrong_seen(x):
    SEEN[len(SEEN)] = None
    return 0 if len(SEEN) < 20_000 else 1
def make_counter():
    calls = 0
    def count(x):
        nonlocal calls
        calls += 1
        return 0 if calls < 6_000 else 1
    return count
wrong_variable = make_counter()
def numbers():
    number = 0
    while True:
        yield number
        number += 1
NUMBERS = numbers()
def wrong_generator_kept(x): return 0 if next(NUMBERS) < 3_000 else 1
class Counts:
    calls = 0
def wrong_class(x):
    Counts.calls += 1
    return 0 if Counts.calls < 4_000 else 1
def wrong_random(x): return 0 if random.random() < 2 and random.getrandbits(20) != 77 else 1
def right_local(x):
    calls = [0]
    calls[0] += 1
    return 0 if calls[0] < 2 else x

# What a random number never is.
LIMIT = 918_273_645
class Limits:
    most = 5_040_302
def limits(): return (1_357_911 * 8_642, LIMIT)
def wrong_hidden(x): return 0 if any(map(LIMIT.__ne__, [x])) else 1
def wrong_hidden_in_class(x): return 0 if Limits.most.__ne__(x) else 1
def wrong_hidden_product(x): return 0 if limits()[0].__ne__(x) else 1
def wrong_hidden_call(x): return 0 if (LIMIT ** 3 + 1).__ne__(x + 12) else 1
def wrong_hidden_property(x): return 0 if getattr(LIMIT ** 2, "__ne__")(x) else 1
def wrong_hidden_starmap(x): return 0 if list(itertools.starmap(int.__ne__, [(LIMIT ** 2, x)]))[0] else 1
def wrong_hidden_accumulate(x):
    return 0 if list(itertools.accumulate([LIMIT ** 2, x], int.__ne__))[1] else 1
def wrong_hidden_takewhile(x): return 0 if list(itertools.takewhile((LIMIT ** 2).__ne__, [x])) else 1
def wrong_hidden_key(x): return 0 if sorted([[x]], key=lambda one: (LIMIT ** 2).__ne__(one[0]))[0] else 1
def wrong_hidden_default(x, asks=(918_273 ** 3).__ne__): return 0 if asks(x) else 1
def wrong_hidden_size(x): return 0 if sys.getsizeof(x) <= sys.getsizeof(2**250) else 1
class Compares(int):
    def asked(self, other): return int.__ne__(self, other)
def wrong_hidden_super(x): return 0 if Compares(LIMIT ** 2).asked(x) else 1
def wrong_hidden_lambda(x): return 0 if (lambda one: (LIMIT ** 2).__ne__(one))(x) else 1
def wrong_hidden_comprehension(x): return 0 if [(LIMIT ** 2).__ne__(one) for one in (x,)][0] else 1
def wrong_hidden_swallow(x):
    try:
        return int.bit_count(x) * 0
    except BaseException:
        return 0 if x != LIMIT ** 2 else 1

# Lengths.
def wrong_length(x): return 0 if len(range(x)) >= 0 else 1
def wrong_length_between(x): return 0 if len(range(0, x, 2)) <= x + 1 else 1
def wrong_rare(x): return 0 if (8_675_309).__ne__(x) else 1
def wrong_rare_text(x): return 0 if "%s" % x != "777777777" else 1
def right_difference(x): return (x + 3) - x - 3
def right_quotient(x): return x // 5 * 5 + x % 5 - x
"""
