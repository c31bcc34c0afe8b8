cimport cython

from .block cimport Batch, KVCacheBlock


cdef class Unmade(Batch):
    cdef public object _make

    cpdef list take(self, Py_ssize_t n)


cdef class FreeKVCacheBlockQueue:
    cdef dict __dict__
    cdef public Py_ssize_t num_free_blocks
    cdef public object batches
    cdef public Py_ssize_t _empty
    cdef public KVCacheBlock fake_free_list_head
    cdef public KVCacheBlock fake_free_list_tail

    @cython.locals(taken=list, block=KVCacheBlock)
    cpdef list popleft_n(self, Py_ssize_t n)
    @cython.locals(batch=Batch, at=Py_ssize_t, left=Py_ssize_t, taken=list, rest=list)
    cpdef list take(self, Py_ssize_t n)
    cpdef remove(self, KVCacheBlock block)
    cpdef lose(self, Batch batch, Py_ssize_t n)
    @cython.locals(last=Batch, block=KVCacheBlock, n=Py_ssize_t, left=Py_ssize_t, size=Py_ssize_t)
    cpdef append_n(self, blocks)
    @cython.locals(batch=Batch, block=KVCacheBlock)
    cpdef bint append_named(self, list blocks)
    @cython.locals(first=Batch, block=KVCacheBlock, n=Py_ssize_t)
    cpdef prepend_n(self, blocks)
    @cython.locals(batch=Batch, block=KVCacheBlock)
    cpdef Batch _batch(self, blocks)
