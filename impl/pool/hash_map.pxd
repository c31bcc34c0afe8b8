cimport cython

from .block cimport KVCacheBlock, Run


cdef bint _COMPILED


cdef class BlockHashToBlockMap:
    cdef dict __dict__
    cdef public object groups

    cpdef index_of(self, group)
    cpdef find(self, group, content)
    cpdef add(self, group, content, KVCacheBlock block)
    @cython.locals(run=Run)
    cpdef register(self, group, contents, list blocks, row)
    @cython.locals(registered=dict, found=list, block=KVCacheBlock, i=Py_ssize_t)
    cpdef bint _add_all(self, group, contents, list blocks)
    @cython.locals(registered=dict, found=list, loose=Py_ssize_t, i=Py_ssize_t, at=Py_ssize_t, n=Py_ssize_t, run=Run)
    cpdef list prefix(self, group, hashes, Py_ssize_t end, Py_ssize_t first=*)
    @cython.locals(registered=dict, parts=list, at=Py_ssize_t, n=Py_ssize_t)
    cpdef list suffix(self, group, hashes, Py_ssize_t first, Py_ssize_t end)
    @cython.locals(start=Py_ssize_t, run=Run)
    cpdef _bind(self, group, hashes, list found, Py_ssize_t first, Py_ssize_t end)
    @cython.locals(registered=dict)
    cpdef remove(self, group, content, block_id)
    @cython.locals(run=Run, registered=dict)
    cpdef bint forget(self, KVCacheBlock block)
    @cython.locals(block=KVCacheBlock, run=Run, i=Py_ssize_t, size=Py_ssize_t, n=Py_ssize_t)
    cpdef forget_all(self, list blocks)
    @cython.locals(block=KVCacheBlock)
    cpdef _forget_end(self, Run run, list blocks)
    @cython.locals(block=KVCacheBlock, registered=dict, contents=list, found=list, n=Py_ssize_t)
    cpdef _drop_end(self, Run run, list blocks)


@cython.locals(n=Py_ssize_t, end=list, given=list)
cpdef Py_ssize_t _end_of_run(Run run, list blocks, Py_ssize_t i)
@cython.locals(run=Run, at=Py_ssize_t)
cpdef Py_ssize_t _place_in_run(KVCacheBlock block, Py_ssize_t i)
@cython.locals(low=Py_ssize_t, high=Py_ssize_t, last=Py_ssize_t)
cpdef Py_ssize_t agreement(list contents, Py_ssize_t at, hashes, Py_ssize_t i, Py_ssize_t n)
@cython.locals(run=Run, first=Py_ssize_t, before=KVCacheBlock)
cpdef Run run_for(group, row)
@cython.locals(block=KVCacheBlock, i=Py_ssize_t)
cpdef name_all(list blocks, contents, Run run)
