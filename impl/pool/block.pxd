cimport cython


cdef class KVCacheBlock


cdef class Batch:
    cdef public object queue
    cdef public list blocks
    cdef public Py_ssize_t at
    cdef public Py_ssize_t left

    @cython.locals(at=Py_ssize_t, blocks=list, block=KVCacheBlock, taken=list)
    cpdef list take(self, Py_ssize_t n)
    @cython.locals(block=KVCacheBlock, rest=list)
    cpdef list members(self)
    @cython.locals(size=Py_ssize_t, block=KVCacheBlock, first=list, rest=list)
    cpdef lose(self, Py_ssize_t n)


cdef class Run:
    cdef public Py_ssize_t group
    cdef public Py_ssize_t first
    cdef public list contents
    cdef public list blocks
    cdef public bint whole


cdef class KVCacheBlock:
    cdef public Py_ssize_t block_id
    cdef public object content
    cdef public Run run
    cdef public object state


cdef dict _LOOSE


cpdef Run loose_run(object group)
@cython.locals(block=KVCacheBlock)
cpdef list ids_of(blocks)
@cython.locals(block=KVCacheBlock, registered=list)
cpdef tuple with_and_without_identity(list blocks)
