cimport cython

from ..managers.kv_cache_manager cimport KVCacheBlocks, KVCacheManager
from .request cimport TodayRequest


cdef bint _READS_OWN
cdef object _OWN


cdef class TodayManager(KVCacheManager):
    cdef public object _ahead
    cdef public object _junctions
    cdef public Py_ssize_t watermark_blocks

    @cython.locals(own=TodayRequest, end=Py_ssize_t, horizon=Py_ssize_t, register=bint, room=Py_ssize_t, hit=tuple)
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
        bint has_scheduled_reqs=*,
        skip_zeroing_group_ids=*,
    )
    cpdef list allocate_slots_batch(self, requests, Py_ssize_t num_new_tokens=*, Py_ssize_t num_lookahead_tokens=*)
