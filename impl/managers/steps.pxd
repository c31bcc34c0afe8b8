cimport cython

from ..pool.block_pool cimport BlockPool
from ..request cimport Request
from .lane cimport Lane


cdef class RunningSteps:
    cdef public dict horizons
    cdef public dict firsts
    cdef public dict due
    cdef public object _managers
    cdef public BlockPool _pool
    cdef public Py_ssize_t _max_model_len
    cdef public object _cache_blocks
    cdef public list lanes
    cdef public Py_ssize_t _least_size
    cdef public Py_ssize_t _most_extra
    cdef public object _widest
    cdef public list _skipping
    cdef public list _moving
    cdef public bint known
    cdef public bint begins
    cdef public bint _all_single
    cdef public Lane _alone

    @cython.locals(lane=Lane)
    cpdef forget(self, request_id)
    cpdef note(self, request_id, Py_ssize_t num_settled_tokens)
    @cython.locals(
        lane=Lane,
        num_settled_tokens=Py_ssize_t,
        first=Py_ssize_t,
        last=Py_ssize_t,
        horizon=Py_ssize_t,
        room=Py_ssize_t,
    )
    cpdef Py_ssize_t look(self, request_id, Py_ssize_t num_new_tokens)
    @cython.locals(
        lane=Lane,
        size=Py_ssize_t,
        computed=Py_ssize_t,
        held=Py_ssize_t,
        tokens=Py_ssize_t,
        cached=Py_ssize_t,
        slots=Py_ssize_t,
        most=Py_ssize_t,
        missing=Py_ssize_t,
        needed=Py_ssize_t,
        row=list,
        table=list,
    )
    cpdef begin(
        self,
        request,
        tuple hit,
        Py_ssize_t num_new_tokens,
        Py_ssize_t num_lookahead_tokens,
        Py_ssize_t room,
        bint whole,
        bint register,
    )
    @cython.locals(
        lane=Lane,
        most=Py_ssize_t,
        slots=Py_ssize_t,
        tokens=Py_ssize_t,
        needed=Py_ssize_t,
        length=Py_ssize_t,
        cached=Py_ssize_t,
        rows=list,
        row=list,
    )
    cpdef _begin_each(
        self,
        request,
        tuple hit,
        Py_ssize_t num_new_tokens,
        Py_ssize_t num_lookahead_tokens,
        Py_ssize_t room,
        bint whole,
        bint register,
    )
    @cython.locals(
        lane=Lane,
        settled=Py_ssize_t,
        skips=Py_ssize_t,
        slots=Py_ssize_t,
        free=Py_ssize_t,
        cached=Py_ssize_t,
        rows=list,
        row=list,
        added=bint,
        moved=bint,
        done=bint,
        horizon=Py_ssize_t,
        size=Py_ssize_t,
        table=list,
        room=Py_ssize_t,
        known=Py_ssize_t,
        at=Py_ssize_t,
    )
    cpdef advance(self, request, request_id, Py_ssize_t tokens, Py_ssize_t num_lookahead_tokens, bint register)
    @cython.locals(request=Request, i=Py_ssize_t, tokens=Py_ssize_t, answers=list)
    cpdef list advance_each(
        self, list requests, list due, Py_ssize_t num_new_tokens, Py_ssize_t num_lookahead_tokens, bint register
    )
    @cython.locals(lane=Lane)
    cpdef Py_ssize_t _missing(self, request, Py_ssize_t slots, Py_ssize_t tokens)


cdef class OneGroupSteps(RunningSteps):
    @cython.locals(
        lane=Lane,
        size=Py_ssize_t,
        table=list,
        slots=Py_ssize_t,
        room=Py_ssize_t,
        known=Py_ssize_t,
        at=Py_ssize_t,
        cached=Py_ssize_t,
    )
    cpdef advance(self, request, request_id, Py_ssize_t tokens, Py_ssize_t num_lookahead_tokens, bint register)


@cython.locals(in_flight=Py_ssize_t, settled=Py_ssize_t, known=Py_ssize_t)
cpdef Py_ssize_t settled_tokens(request, Py_ssize_t num_computed_tokens, Py_ssize_t num_tokens)
@cython.locals(request=Request, i=Py_ssize_t, horizon=Py_ssize_t, behind=list)
cpdef list steps_behind_horizons(list requests, dict horizons, Py_ssize_t tokens)
