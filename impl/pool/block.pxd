cimport cython


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


cpdef Run loose_run(object group)
@cython.locals(block=KVCacheBlock)
cpdef list ids_of(blocks)
