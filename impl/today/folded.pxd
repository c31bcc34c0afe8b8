cimport cython

from ..pool.block cimport KVCacheBlock, Run
from ..pool.hash_map cimport BlockHashToBlockMap, name_all, run_for


cdef class FoldedRun(Run):
    cdef public bint folded
    cdef public list leaves
    cdef public Py_ssize_t looked
    cdef public FoldedRun again


cdef class Folds:
    cdef public dict heads
    cdef public dict index
    cdef public bint orphans


cdef class FoldingMap(BlockHashToBlockMap):
    cdef public dict folds

    @cython.locals(folds=Folds)
    cpdef unfold(self, group)
    @cython.locals(folds=Folds)
    cpdef index_of(self, group)
    @cython.locals(folds=Folds)
    cpdef bint begins(self, group, content)
    @cython.locals(folds=Folds, run=FoldedRun, found=list, i=Py_ssize_t, n=Py_ssize_t)
    cpdef list prefix(self, group, hashes, Py_ssize_t end, Py_ssize_t first=*)
    cpdef find(self, group, content)
    @cython.locals(folds=Folds, run=FoldedRun)
    cpdef register(self, group, contents, list blocks, row)
    @cython.locals(folds=Folds)
    cpdef bint register_first(self, group, content, KVCacheBlock block)
    @cython.locals(folds=Folds, made=FoldedRun, run=Run, loose=Run, block=KVCacheBlock, other=KVCacheBlock)
    cpdef bint register_new(self, group, contents, list blocks, row)
    @cython.locals(n=Py_ssize_t, left=Py_ssize_t, folds=Folds)
    cpdef _drop_end(self, Run run, list blocks)
    cpdef bint forget(self, KVCacheBlock block)
