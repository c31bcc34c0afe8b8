cimport cython

from ..pool.block cimport KVCacheBlock, Run
from ..pool.block_pool cimport BlockPool
from ..pool.free_queue cimport FreeKVCacheBlockQueue
from .folded cimport FoldedRun, Folds
from .names cimport SeveralNames


cdef class TodayPool(BlockPool):
    cdef public object num_hash_lookahead_tokens
    cdef public object _queue
    cdef public object _folding
    cdef public bint _slept
    cdef public list copying
    cdef public dict _lent
    cdef public dict _watchers
    cdef public dict further
    cdef public dict partial

    @cython.locals(
        unit=Py_ssize_t,
        at=Py_ssize_t,
        known=SeveralNames,
        block=KVCacheBlock,
        before=KVCacheBlock,
        run=Run,
        folds=Folds,
    )
    cpdef cache_full_block(self, request, list table, Py_ssize_t i, Py_ssize_t block_size, group_id)
    @cython.locals(blocks=list, per=Py_ssize_t, contents=list)
    cpdef cache_row(self, request, list table, Py_ssize_t first, Py_ssize_t end, Py_ssize_t size, group_id)
    cpdef bint is_named(self, KVCacheBlock block, name)
    cpdef covers(self, KVCacheBlock block, whole)
    cpdef add_name(self, KVCacheBlock block, group, content, covers)
    cpdef unname(self, KVCacheBlock block)
    cpdef move_names(self, KVCacheBlock source, KVCacheBlock target)
    @cython.locals(run=Run)
    cpdef list _unnamed(self, KVCacheBlock block)
    @cython.locals(queue=FreeKVCacheBlockQueue, known=SeveralNames, blocks=list, block=KVCacheBlock)
    cpdef list get_new_blocks(self, Py_ssize_t num_blocks)
    cpdef KVCacheBlock get_new_block(self)
    @cython.locals(
        queue=FreeKVCacheBlockQueue,
        n=Py_ssize_t,
        whole=bint,
        alike=Py_ssize_t,
        first=Py_ssize_t,
        own=bint,
        block=KVCacheBlock,
    )
    cpdef bint _touch_many(self, blocks)
    @cython.locals(queue=FreeKVCacheBlockQueue, n=Py_ssize_t, block=KVCacheBlock)
    cpdef _touch_each(self, blocks)
    cpdef hold(self, KVCacheBlock block)
    @cython.locals(block=KVCacheBlock, queue=FreeKVCacheBlockQueue, own=Py_ssize_t, n=Py_ssize_t)
    cpdef release_by_names(self, list blocks)
    @cython.locals(freed=list, shared=list, alike=Py_ssize_t, block=KVCacheBlock)
    cpdef list _let_go_shared(self, list blocks, Py_ssize_t own)
