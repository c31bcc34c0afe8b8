cimport cython

from ..managers.lane cimport Lane
from ..managers.steps cimport RunningSteps


cdef class StepsBehindPrompts(RunningSteps):
    cdef public set behind
    cdef public Py_ssize_t _most_apart
    cdef public list _keeping
    cdef public list _told

    cpdef note(self, request_id, Py_ssize_t num_settled_tokens)
    cpdef forget(self, request_id)
    @cython.locals(
        found=Py_ssize_t, start=Py_ssize_t, tokens=Py_ssize_t, end=Py_ssize_t, most=Py_ssize_t, begins=bint, lane=Lane
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
    @cython.locals(lane=Lane)
    cpdef bint _fit(self, Py_ssize_t found, blocks)
    @cython.locals(entry=Py_ssize_t)
    cpdef _attach(self, Lane lane, request_id, Py_ssize_t found, row)
