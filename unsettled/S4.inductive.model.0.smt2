; S4.inductive on model: path 42, claim 1: unsat means proved
(set-logic ALL)
; benchmark generated from python API
(set-info :status unknown)
(declare-fun key_of (Int) Int)
(declare-fun block () Int)
(assert
 (let ((?x0 (key_of 0)))
 (= 0 ?x0)))
(assert
 (let (($x1 (= 0 (ite (and (= 0 block)) 0 (key_of 0)))))
(not $x1)))
(check-sat)
