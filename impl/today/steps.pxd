from ..managers.steps cimport RunningSteps


cdef class StepsBehindPrompts(RunningSteps):
    cdef public set behind

    cpdef note(self, request_id, Py_ssize_t num_settled_tokens)
    cpdef forget(self, request_id)
