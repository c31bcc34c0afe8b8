cimport cython


cdef class Request:
    cdef dict __dict__
    cdef public object request_id
    cdef public Py_ssize_t num_computed_tokens
    cdef public list block_hashes
    cdef public list _all_token_ids
    cdef public object client_index
    cdef public object priority
    cdef public object sampling_params
    cdef public object pooling_params
    cdef public object arrival_time
    cdef public object prompt_token_ids
    cdef public object prompt_embeds
    cdef public object prompt_is_token_ids
    cdef public object _prompt_embeds_per_block_hashes
    cdef public object mm_features
    cdef public object lora_request
    cdef public object cache_salt
    cdef public object trace_headers
    cdef public object resumable
    cdef public object reasoning_ended
    cdef public object reasoning_parser_kwargs
    cdef public object abort_immediately
    cdef public object skip_reading_prefix_cache
    cdef public Py_ssize_t num_prompt_tokens
    cdef public object spec_token_ids
    cdef public Py_ssize_t num_preemptions
    cdef public object _block_hasher
    cdef public Py_ssize_t _block_size
    cdef public Py_ssize_t _tokens_ahead
    cdef public Py_ssize_t _next_full

    @cython.locals(tokens=list)
    cpdef append_output_token_ids(self, token_ids)
    cpdef update_block_hashes(self)
