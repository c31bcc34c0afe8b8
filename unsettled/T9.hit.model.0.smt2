; T9.hit on model: forced after FFFFFFFFFFFT decisions: unsat means proved
(set-logic ALL)
; benchmark generated from python API
(set-info :status unknown)
(declare-fun b () Int)
(declare-fun m () Int)
(declare-fun rest () Int)
(declare-fun w () Int)
(assert
 (<= 1 b))
(assert
 (<= 1 m))
(assert
 (<= 0 rest))
(assert
 (< rest b))
(assert
 (<= 1 w))
(assert
 (< 0 b))
(assert
 (let (($x0 (= 4 m)))
 (not $x0)))
(assert
 (let (($x1 (= 3 m)))
 (not $x1)))
(assert
 (let (($x2 (= 2 m)))
 (not $x2)))
(assert
 (let (($x3 (= 1 m)))
 (not $x3)))
(assert
 (let (($x4 (= 0 m)))
 (not $x4)))
(assert
 (let (($x5 (= (- 1) m)))
 (not $x5)))
(assert
 (let (($x6 (= (- 2) m)))
 (not $x6)))
(assert
 (let (($x7 (= (- 3) m)))
 (not $x7)))
(assert
 (let (($x8 (= (- 4) m)))
 (not $x8)))
(assert
 (let ((?x9 (* 3 b)))
 (< 0 ?x9)))
(assert
 (let (($x10 (<= b 1)))
 (let (($x11 (not $x10)))
 (not $x11))))
(assert
 (let ((?x9 (* 3 b)))
 (let ((?x12 (+ ?x9 rest)))
 (>= ?x12 0))))
(assert
 (let (($x13 (>= 0 b)))
(let (($x14 (not $x13)))
(not $x14))))
(check-sat)
