"""More functions that are not what they seem on symbols; as in `attacks`, each is 0 but for one number.

Here the number is far from all that a random run meets, so what refuses it is what watches, and no luck.
"""

SOURCE = """
import abc, bisect, builtins, collections, contextlib, contextvars, copy, dataclasses, functools, itertools, math
import operator, statistics, string, sys, traceback, types, unittest.mock, warnings
from concurrent.futures import ThreadPoolExecutor
LIMIT = 918_273_645
BIG = LIMIT ** 2 * 8_642 + 12

# Functions that are kept where nobody looks for them.
class Holder: pass
class Slotted:
    __slots__ = ("asks",)
KEPT, SLOTS = Holder(), Slotted()
KEPT.asks = lambda one: BIG.__ne__(one)
KEPT.table = [lambda one: BIG.__ne__(one)]
KEPT.deep = collections.deque([lambda one: BIG.__ne__(one)])
SLOTS.asks = lambda one: BIG.__ne__(one)
KEPT.fine = lambda one: one - one
def make_inner():
    def inner(x): return BIG.__ne__(x)
    return inner
KEPT.inner = make_inner()
MADE = {}
exec("def f(x): return BIG.__ne__(x)", {"BIG": BIG}, MADE)
exec('''def g(x):
    try:
        return int.bit_count(x) * 0
    except Exception:
        return 0 if x - 12 != 918_273_645 ** 2 * 8_642 else 1''', {}, MADE)
def wrong_hidden_attribute(x): return 0 if KEPT.asks(x) else 1
def wrong_hidden_table(x): return 0 if KEPT.table[0](x) else 1
def wrong_hidden_deque(x): return 0 if KEPT.deep[0](x) else 1
def wrong_hidden_slot(x): return 0 if SLOTS.asks(x) else 1
def wrong_hidden_inner(x): return 0 if KEPT.inner(x) else 1
def wrong_hidden_text(x): return 0 if MADE["f"](x) else 1
def wrong_hidden_text_that_swallows(x): return MADE["g"](x)
def wrong_hidden_lambda_default(x, asks=lambda one: BIG.__ne__(one)): return 0 if asks(x) else 1
def wrong_hidden_named_default(x, *, asks=BIG.__ne__): return 0 if asks(x) else 1
def right_kept(x): return KEPT.fine(x)

# What calls a function for somebody else.
MOCK = unittest.mock.Mock(side_effect=BIG.__ne__)
class Direct:
    __contains__ = __getitem__ = __add__ = __call__ = __lt__ = BIG.__ne__
class Metaclass(type):
    __call__ = lambda kind, x: BIG.__ne__(x)
class Method:
    __call__ = math.ldexp
def wrong_hidden_mock(x): return 0 if MOCK(x) else 1
def wrong_hidden_new_mock(x): return 0 if unittest.mock.Mock(side_effect=BIG.__ne__)(x) else 1
def wrong_hidden_thread(x):
    with ThreadPoolExecutor(1) as pool:
        return 0 if pool.submit(BIG.__ne__, x).result() else 1
def wrong_hidden_context(x): return 0 if contextvars.copy_context().run(BIG.__ne__, x) else 1
def wrong_hidden_in(x): return 0 if x in Direct() else 1
def wrong_hidden_item(x): return 0 if Direct()[x] else 1
def wrong_hidden_less(x): return 0 if Direct() < x else 1
def wrong_hidden_direct(x): return 0 if Direct()(x) else 1
def wrong_hidden_identity_of_answer(x): return 0 if Direct()(x) is not False else 1
def wrong_hidden_metaclass(x): return 0 if Metaclass("Made", (), {})(x) else 1
def wrong_hidden_bound(x): return 0 if types.MethodType(int.__ne__, BIG)(x) else 1
def wrong_hidden_got(x): return 0 if int.__ne__.__get__(BIG)(x) else 1
def wrong_hidden_wrapper(x): return 0 if type(BIG.__ne__).__call__(BIG.__ne__, x) else 1
def wrong_hidden_stack(x):
    found = []
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: found.append(BIG.__ne__(x)))
    return 0 if found[0] else 1
def wrong_hidden_swallow_in_pool(x):
    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(int.bit_count, x).exception() is not None
    return 0 if failed or x != BIG else 1

# What a class of somebody's own answers.
class Asks:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return BIG.__ne__(other)
    def __bool__(self): return BIG.__ne__(self.x)
    def __index__(self): return 0 if BIG.__ne__(self.x) else 1
    def __iter__(self): return iter([BIG.__ne__(self.x)])
    @property
    def asked(self): return BIG.__ne__(self.x)
    lazily = property(lambda self: BIG.__ne__(self.x))
    @functools.cached_property
    def once(self): return BIG.__ne__(self.x)
    @property
    def nothing(self): return self.x - self.x
class Descriptor:
    def __get__(self, one, kind): return BIG.__ne__(one.x)
class Described:
    asked = Descriptor()
    def __init__(self, x): self.x = x
class Listens:
    def __setattr__(self, name, value): object.__setattr__(self, name, BIG.__ne__(value))
def wrong_hidden_equal(x): return 0 if Asks(1) == x else 1
def wrong_hidden_truth(x): return 0 if Asks(x) else 1
def wrong_hidden_index(x): return [0, 1][Asks(x)]
def wrong_hidden_unpacked(x):
    (asked,) = Asks(x)
    return 0 if asked else 1
def wrong_hidden_asked(x): return 0 if Asks(x).asked else 1
def wrong_hidden_lambda_property(x): return 0 if Asks(x).lazily else 1
def wrong_hidden_cached(x): return 0 if Asks(x).once else 1
def wrong_hidden_descriptor(x): return 0 if Described(x).asked else 1
def wrong_hidden_set(x):
    listens = Listens()
    listens.a = x
    return 0 if listens.a else 1
def right_property(x): return Asks(x).nothing
@dataclasses.dataclass
class Pair:
    one: int
    other: int = 0
def right_dataclass(x): return Pair(x).one - x + Pair(x).other
def right_partial(x): return functools.partial(operator.sub, x)(x)
def right_sorted(x): return sorted([x, x + 1])[0] - x

# Text and errors.
def wrong_hidden_traceback(x):
    try:
        raise ValueError(x)
    except ValueError:
        return 0 if str(BIG) not in traceback.format_exc() else 1
def wrong_hidden_warning(x):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.warn(f"{x}")
    return 0 if not said or str(said[0].message) != str(BIG) else 1
def wrong_hidden_template(x): return 0 if string.Template("$a").substitute(a=x) != str(BIG) else 1
def wrong_hidden_key_error(x):
    try:
        {}[x]
    except KeyError as error:
        return 0 if str(error) != str(BIG) else 1
def wrong_hidden_star(x):
    found = 1
    try:
        raise ExceptionGroup("all", [TypeError(int.bit_count(x))])
    except* Exception:
        found = 0 if x != BIG else 1
    return found
"""
