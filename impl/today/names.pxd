cimport cython

from ..pool.block cimport KVCacheBlock, Run
from .folded cimport FoldingMap, Folds


cdef class SeveralNames(FoldingMap):
    cdef public dict further
    cdef public dict partial
    cdef public object marked

    @cython.locals(run=Run)
    cpdef mark(self, KVCacheBlock block, group)
    cpdef bint is_marked(self, KVCacheBlock block)
    @cython.locals(run=Run, folds=Folds, registered=dict)
    cpdef bint forget(self, KVCacheBlock block)
    @cython.locals(run=Run, block=KVCacheBlock)
    cpdef bint take_end(self, list blocks)
    @cython.locals(block=KVCacheBlock)
    cpdef _bind(self, group, hashes, list found, Py_ssize_t first, Py_ssize_t end)
