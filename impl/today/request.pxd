from ..request cimport Request


cdef class TodayRequest(Request):
    cdef public object status
    cdef public object num_in_flight_tokens
    cdef public object shared_prefix_boundary
