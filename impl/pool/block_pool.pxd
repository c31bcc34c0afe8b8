cimport cython

from .block cimport Batch, KVCacheBlock, Run, loose_run
from .free_queue cimport FreeKVCacheBlockQueue
from .hash_map cimport BlockHashToBlockMap


cdef class BlockPool:
    cdef dict __dict__
    cdef public Py_ssize_t num_gpu_blocks
    cdef public bint enable_caching
    cdef public object hash_block_size
    cdef public KVCacheBlock null_block
    cdef public list _made
    cdef public FreeKVCacheBlockQueue free_block_queue
    cdef public BlockHashToBlockMap cached_block_hash_to_block
    cdef public bint enable_kv_cache_events
    cdef public list kv_event_queue
    cdef public bint reference_keys
    cdef public object metrics_collector
    cdef public Py_ssize_t _num_shared
    cdef public bint _trusting

    @cython.locals(block=KVCacheBlock, first=Py_ssize_t, end=Py_ssize_t, chosen=list)
    cpdef cache_full_blocks(
        self,
        request,
        blocks,
        Py_ssize_t num_cached_blocks,
        Py_ssize_t num_full_blocks,
        block_size,
        kv_cache_group_id,
        block_mask=*,
    )
    @cython.locals(free=Py_ssize_t, blocks=list, block=KVCacheBlock)
    cpdef list get_new_blocks(self, Py_ssize_t num_blocks)
    @cython.locals(own=list, block=KVCacheBlock, null=KVCacheBlock, queue=FreeKVCacheBlockQueue)
    cpdef touch(self, blocks)
    cpdef free_blocks(self, ordered_blocks, bint prepend=*)
    @cython.locals(first=Py_ssize_t)
    cpdef list _make(self, Py_ssize_t count)
    cpdef cache_row(self, request, list table, Py_ssize_t first, Py_ssize_t end, Py_ssize_t size, group_id)
    @cython.locals(block=KVCacheBlock, registered=dict)
    cpdef cache_full_block(self, request, list table, Py_ssize_t i, Py_ssize_t block_size, group_id)
    @cython.locals(queue=FreeKVCacheBlockQueue, batch=Batch, at=Py_ssize_t, left=Py_ssize_t, block=KVCacheBlock)
    cpdef KVCacheBlock get_new_block(self)
    cpdef release_one(self, KVCacheBlock block)
    @cython.locals(states=list, shared=list, left=list, freed=list, own=Py_ssize_t, block=KVCacheBlock)
    cpdef _let_go(self, list blocks, bint prepend)
    @cython.locals(freed=list, own=list, null=KVCacheBlock, unshared=Py_ssize_t, i=Py_ssize_t, block=KVCacheBlock, earlier=KVCacheBlock)
    cpdef _give_back(self, list blocks, bint prepend)
    cpdef _forget_identity(self, KVCacheBlock block)
    @cython.locals(block=KVCacheBlock, run=Run, gone=list, groups=list)
    cpdef _forget_loudly(self, blocks)
    @cython.locals(block=KVCacheBlock, null=KVCacheBlock)
    cpdef list _mask(self, list chosen, wanted)
    @cython.locals(block=KVCacheBlock, states=list, own=list, queue=FreeKVCacheBlockQueue, held=list)
    cpdef bint _touch_many(self, blocks)
