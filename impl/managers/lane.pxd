cimport cython

from ..pool.block cimport KVCacheBlock
from ..pool.block_pool cimport BlockPool


cdef class Lane:
    cdef public object manager
    cdef public BlockPool pool
    cdef public object tables
    cdef public dict registered
    cdef public object group
    cdef public Py_ssize_t size
    cdef public Py_ssize_t step
    cdef public Py_ssize_t extra
    cdef public bint may_skip
    cdef public bint caching
    cdef public bint single
    cdef public bint moves
    cdef public bint notes_registered
    cdef public bint waits
    cdef public bint keeps_states
    cdef public bint begins
    cdef public dict skips
    cdef public dict firsts

    cpdef Py_ssize_t missing(self, request, Py_ssize_t slots, Py_ssize_t tokens)
    @cython.locals(missing=Py_ssize_t, block=KVCacheBlock)
    cpdef list grow(self, list table, Py_ssize_t slots)
    cpdef list begin(self, Py_ssize_t missing)
    @cython.locals(computed=Py_ssize_t, size=Py_ssize_t, table=list, room=Py_ssize_t, block=KVCacheBlock)
    cpdef list arrange(self, request, Py_ssize_t slots, Py_ssize_t tokens)
    @cython.locals(table=list, null=KVCacheBlock, running=Py_ssize_t, whole=bint)
    cpdef find_place(self, request_id)
    cpdef look_ahead(self, request_id, Py_ssize_t num_settled_tokens)
    @cython.locals(block=KVCacheBlock)
    cpdef bint register(self, request, request_id, list table, Py_ssize_t i)
    @cython.locals(size=Py_ssize_t, pool=BlockPool, named=Py_ssize_t, end=Py_ssize_t)
    cpdef Py_ssize_t register_row(self, request, list table, Py_ssize_t known, Py_ssize_t tokens)
    @cython.locals(size=Py_ssize_t, step=Py_ssize_t, known=Py_ssize_t)
    cpdef Py_ssize_t registers_at(self, request_id)
