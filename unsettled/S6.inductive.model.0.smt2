; S6.inductive on model: path 42, claim 2: unsat means proved
(set-logic ALL)
; benchmark generated from python API
(set-info :status unknown)
(declare-fun floor_of (Int) Int)
(declare-fun request_of (Int) Int)
(declare-fun t () Int)
(declare-fun cut_of (Int) Int)
(assert
 (and (<= 0 (cut_of t)) (<= (cut_of t) (floor_of (request_of t)))))
(assert
 (let (($x0 (and (<= 0 (cut_of t)) (<= (cut_of t) (floor_of (request_of t))))))
(not $x0)))
(check-sat)
