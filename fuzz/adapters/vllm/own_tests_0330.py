"""The tests of vLLM 0.33.0 that need not pass over our core, by reason. A name without parameters stands for all of
its."""

from collections.abc import Mapping

_CORE = "tests/v1/core/test_"
_HISPARSE = "HiSparse: our core has no pool beside its pool for the pages of sparse attention"
_RANKS = "ranks: our core shares several groups over no context-parallel ranks"
_INSIDE = "inside: the test asks parts of the release's core for what ours does not have, "
_REASONS: Mapping[str, tuple[str, ...]] = {
    _HISPARSE: (
        "prefix_caching.py::test_can_fit_full_sequence_hisparse_caps_resident_pages",
        "prefix_caching.py::test_connector_completes_partial_prefix_without_importing_missing_host_kv",
        "prefix_caching.py::test_device_eviction_keeps_host_prefix",
        "prefix_caching.py::test_full_sequence_admission_reserves_device_blocks_for_immediate_chunk",
        "prefix_caching.py::test_hisparse_aborted_tail_restore_retains_both_endpoints",
        "prefix_caching.py::test_hisparse_admitted_async_loads_can_finish_with_nothing_running",
        "prefix_caching.py::test_hisparse_async_admission_requires_full_prompt_host_pages",
        "prefix_caching.py::test_hisparse_builds_dma_row_mirrors_across_pages",
        "prefix_caching.py::test_hisparse_capacity_query_does_not_require_hot_blocks",
        "prefix_caching.py::test_hisparse_cleanup_publishes_only_finalized_terminal_pages",
        "prefix_caching.py::test_hisparse_deferred_free_retains_host_blocks_until_fence",
        "prefix_caching.py::test_hisparse_does_not_write_back_reprefillable_tokens",
        "prefix_caching.py::test_hisparse_events_report_host_and_device_placement",
        "prefix_caching.py::test_hisparse_external_import_survives_capacity_retry",
        "prefix_caching.py::test_hisparse_external_import_uses_hard_gpu_footprint",
        "prefix_caching.py::test_hisparse_finished_request_leaves_free_copies",
        "prefix_caching.py::test_hisparse_full_pool_keeps_pages_pinned_until_preemption",
        "prefix_caching.py::test_hisparse_host_backed_request_accepts_local_prefix_hit",
        "prefix_caching.py::test_hisparse_host_cow_copy_is_drained_without_a_gpu_pool",
        "prefix_caching.py::test_hisparse_host_exhaustion_defers_allocation",
        "prefix_caching.py::test_hisparse_host_import_ignores_unsealed_tail",
        "prefix_caching.py::test_hisparse_host_prefix_can_be_completed_by_indexer_offload",
        "prefix_caching.py::test_hisparse_import_capacity_includes_hits_and_cow",
        "prefix_caching.py::test_hisparse_indexer_offload_is_capped_by_missing_host_prefix",
        "prefix_caching.py::test_hisparse_inflight_host_import_reserves_remaining_gpu_pages",
        "prefix_caching.py::test_hisparse_keeps_resident_pages_until_hot_buffer_is_allocated",
        "prefix_caching.py::test_hisparse_materialization_respects_per_step_spill_budget",
        "prefix_caching.py::test_hisparse_materializes_prefix_without_allocating_hot_blocks",
        "prefix_caching.py::test_hisparse_preempted_prefill_resumes_from_durable_prefix",
        "prefix_caching.py::test_hisparse_prefill_reads_host_once_it_fills_admission_window",
        "prefix_caching.py::test_hisparse_prefix_hit_adopts_gpu_shadow_pages",
        "prefix_caching.py::test_hisparse_prefix_hit_under_pressure_adopts_surviving_copies",
        "prefix_caching.py::test_hisparse_readmitted_request_resends_its_full_residency",
        "prefix_caching.py::test_hisparse_recomputation_does_not_complete_failed_host_import",
        "prefix_caching.py::test_hisparse_reports_when_context_is_fully_resident",
        "prefix_caching.py::test_hisparse_reset_prefix_cache_drops_copies",
        "prefix_caching.py::test_hisparse_residency_update_sends_only_changed_pages",
        "prefix_caching.py::test_hisparse_resident_request_can_grow_without_hot_capacity",
        "prefix_caching.py::test_hisparse_reused_copy_is_not_adopted",
        "prefix_caching.py::test_hisparse_terminal_prefix_waits_for_all_workers_and_preserves_identity",
        "prefix_caching.py::test_host_receive_completion_without_spill_metadata",
        "prefix_caching.py::test_nixl_hisparse_full_block_import_keeps_a_writable_tail",
        "scheduler.py::test_pending_hisparse_reclamation_defers_preemption",
        "scheduler.py::test_pending_hisparse_spill_keeps_scheduler_alive",
    ),
    "eagle-last-block: the test wants no hit behind which the block of the prompt's last token is needed": (
        "prefix_caching.py::test_eagle_identical_prompt_hit",
    ),
    "replay-boundary-early: the test wants what the release keeps for a replay, a block before where that can resume": (
        "prefix_caching.py::test_hybrid_local_kv_retention_mtp_reuses_latest_boundary",
        "prefix_caching.py::test_hybrid_mamba_retention_mtp_resend_of_aligned_prompt",
    ),
    _RANKS: (
        "kv_cache_utils.py::test_dcp_target_allocates_replicated_draft_independently",
        "prefix_caching.py::test_prefix_cache_hit_uses_per_group_dcp_geometry",
    ),
    "sessions: our core tells of no session that a block was stored for": (
        "prefix_caching.py::test_block_stored_event_session_id",
    ),
    f"{_INSIDE}its logger": ("prefix_caching.py::test_block_stored_event_group_idx_out_of_bounds",),
    f"{_INSIDE}a search by group": (
        "prefix_caching.py::test_eagle_hybrid_mamba_hits_partial_prompt_boundary",
        "scheduler.py::test_hybrid_per_group_hit_divergence_with_connector",
        "scheduler.py::test_hybrid_fa_deeper_hit_respects_connector_lookup_policy",
    ),
    f"{_INSIDE}how many tokens the name of a block covers": (
        "prefix_caching.py::test_lookahead_checkpoint_has_available_hash",
    ),
    f"{_INSIDE}the words of a refusal": (
        "prefix_caching.py::test_positive_retention_rejects_full_attention",
        "prefix_caching.py::test_hybrid_local_kv_retention_interval_rejects_invalid",
    ),
    f"{_INSIDE}the name of its class": ("prefix_caching.py::test_pure_swa_retention_interval_caches_sparse_tails",),
}

_UNIT = "tests/v1/kv_connector/unit/test_"
_CONNECTORS: Mapping[str, str] = {
    **{
        f"{_UNIT}hisparse_connector.py::test_{name}": _HISPARSE
        for name in (
            "cache_manager_binding_preserves_hisparse_and_legacy_pool_hooks",
            "hisparse_host_residency_reported_as_hisparse_metrics",
            "scheduled_prefix_hit_publishes_adopted_copies",
            "scheduler_stats_report_host_pool_usage",
        )
    },
    "tests/v1/simple_kv_offload/test_scheduler.py::test_eager_store_matches_gpu_cacheable_prefix": _RANKS,
    f"{_UNIT}nixl_simple_cpu_offload.py::test_cpu_offload_wins_when_nixl_has_no_match": (
        f"{_INSIDE}how many tokens the name of a block covers"
    ),
    f"{_UNIT}nixl_connector_hma.py::test_failed_load_rezeroes_unwritten_skipped_blocks": (
        f"{_INSIDE}a manager made up by the test"
    ),
    f"{_UNIT}remote_prefill_lifecycle.py::test_async_load_does_not_double_reserve_mamba_spec_blocks[align-16-18]": (
        "mamba-gate: the test's pool has just the room that the release counts"
    ),
}

DECLARED: Mapping[str, str] = {
    **{f"{_CORE}{name}": reason for reason, names in _REASONS.items() for name in names},
    **_CONNECTORS,
}
