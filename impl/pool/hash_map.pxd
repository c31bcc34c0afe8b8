cimport cython

from .block cimport KVCacheBlock, Run


cdef class BlockHashToBlockMap:
    cdef dict __dict__
    cdef public object groups

    cpdef find(self, group, content)
    cpdef add(self, group, content, KVCacheBlock block)
    @cython.locals(run=Run, block=KVCacheBlock)
    cpdef register(self, group, contents, list blocks, row)
    @cython.locals(registered=dict, new=bint, block=KVCacheBlock)
    cpdef bint _add_all(self, group, contents, list blocks)
    @cython.locals(registered=dict, found=list, loose=Py_ssize_t, i=Py_ssize_t, at=Py_ssize_t, n=Py_ssize_t, run=Run)
    cpdef list prefix(self, group, hashes, Py_ssize_t most)
    @cython.locals(first=Py_ssize_t, run=Run)
    cpdef _bind(self, group, hashes, list found, Py_ssize_t most)
    @cython.locals(registered=dict)
    cpdef remove(self, group, content, block_id)
    @cython.locals(run=Run, registered=dict)
    cpdef bint forget(self, KVCacheBlock block)


@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cpdef Py_ssize_t _agreement(list contents, Py_ssize_t at, hashes, Py_ssize_t i, Py_ssize_t n)
@cython.locals(run=Run)
cpdef Run _run_behind(first, KVCacheBlock before, group)
