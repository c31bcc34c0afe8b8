cimport cython

from ..pool.block cimport ids_of
from ..pool.block_pool cimport BlockPool
from ..request cimport Request
from .steps cimport RunningSteps, settled_tokens, steps_behind_horizons


cdef bint _READS_OWN
cdef object _OWN


cdef class KVCacheBlocks:
    cdef public object blocks


cdef class KVCacheManager:
    cdef dict __dict__
    cdef public Py_ssize_t max_model_len
    cdef public bint enable_caching
    cdef public object use_eagle
    cdef public object log_stats
    cdef public object metrics_collector
    cdef public object prefix_cache_stats
    cdef public object coordinator
    cdef public object num_kv_cache_groups
    cdef public BlockPool block_pool
    cdef public dict _horizons
    cdef public dict _due
    cdef public dict _firsts
    cdef public RunningSteps _steps
    cdef public bint _begins
    cdef public object kv_cache_config
    cdef public object kv_cache_event_metadata
    cdef public KVCacheBlocks empty_kv_cache_blocks

    @cython.locals(
        own=Request,
        tokens=Py_ssize_t,
        horizon=Py_ssize_t,
        room=Py_ssize_t,
        register=bint,
        hit=tuple,
    )
    cpdef allocate_slots(
        self,
        request,
        Py_ssize_t num_new_tokens,
        Py_ssize_t num_new_computed_tokens=*,
        new_computed_blocks=*,
        Py_ssize_t num_lookahead_tokens=*,
        Py_ssize_t num_external_computed_tokens=*,
        bint delay_cache_blocks=*,
        Py_ssize_t num_encoder_tokens=*,
        bint full_sequence_must_fit=*,
        Py_ssize_t reserved_blocks=*,
    )
    @cython.locals(
        counts=Py_ssize_t,
        local_tokens=Py_ssize_t,
        total_computed=Py_ssize_t,
        num_tokens=Py_ssize_t,
        settled=Py_ssize_t,
        needed=Py_ssize_t,
        room=Py_ssize_t,
        main_tokens=Py_ssize_t,
        slots=Py_ssize_t,
        max_model_len=Py_ssize_t,
    )
    cpdef _allocate_behind_horizon(
        self,
        request,
        Py_ssize_t num_new_tokens,
        Py_ssize_t num_new_computed_tokens,
        new_computed_blocks,
        Py_ssize_t num_lookahead_tokens,
        Py_ssize_t num_external_computed_tokens,
        bint delay_cache_blocks,
        Py_ssize_t num_encoder_tokens,
        bint full_sequence_must_fit,
        Py_ssize_t reserved_blocks,
    )
    @cython.locals(horizons=dict, beyond=Py_ssize_t, asked=list, answers=list, due=list, taken=list, i=Py_ssize_t)
    cpdef list allocate_slots_batch(self, requests, Py_ssize_t num_new_tokens=*, Py_ssize_t num_lookahead_tokens=*)
