cdef class Run:
    cdef public Py_ssize_t group
    cdef public Py_ssize_t first
    cdef public list contents
    cdef public list blocks
    cdef public bint whole


cpdef Run loose_run(object group)


cdef class KVCacheBlock:
    cdef public Py_ssize_t block_id
    cdef public object content
    cdef public Run run
    cdef public object state
