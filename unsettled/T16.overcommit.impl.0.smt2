; T16.overcommit on impl: forced after TFTTFFTFFFFT decisions: unsat means proved
(set-logic ALL)
; benchmark generated from python API
(set-info :status unknown)
(declare-fun b () Int)
(declare-fun blocks () Int)
(declare-fun one_step () Int)
(declare-fun one () Int)
(declare-fun other_step () Int)
(declare-fun other () Int)
(assert
 (<= 1 b))
(assert
 (<= 0 blocks))
(assert
 (<= 1 one_step))
(assert
 (<= one_step one))
(assert
 (>= 1000000 one))
(assert
 (<= 1 other_step))
(assert
 (<= other_step other))
(assert
 (>= 1000000 other))
(assert
 (let (($x0 (<= one_step 0)))
 (not $x0)))
(assert
 (let (($x1 (<= 0 one_step)))
 (let (($x2 (not $x1)))
 (not $x2))))
(assert
 (let (($x3 (= one_step 0)))
 (not $x3)))
(assert
 (let (($x4 (<= one 1)))
 (not $x4)))
(assert
 (let (($x5 (<= one 1000000000)))
 (let (($x6 (not $x5)))
 (not $x6))))
(assert
 (let (($x7 (= b 0)))
 (not $x7)))
(assert
 (let (($x8 (<= b 0)))
 (not $x8)))
(assert
 (let ((?x9 (* (- 1) one)))
 (let ((?x10 (div ?x9 b)))
 (let (($x11 (<= ?x10 0)))
 (let (($x12 (not $x11)))
 (not $x12))))))
(assert
 (let ((?x9 (* (- 1) one)))
 (let ((?x10 (div ?x9 b)))
 (let ((?x13 (* (- 1) ?x10)))
 (let (($x14 (<= ?x13 blocks)))
 (let (($x15 (not $x14)))
 (not $x15)))))))
(assert
 (let (($x16 (<= one_step 1000000000)))
 (let (($x17 (not $x16)))
 (not $x17))))
(assert
 (let ((?x18 (* (- 1) one_step)))
 (let ((?x19 (div ?x18 b)))
 (let ((?x20 (* (- 1) ?x19)))
 (let (($x21 (<= ?x20 blocks)))
 (let (($x22 (not $x21)))
 (not $x22)))))))
(assert
 (let ((?x18 (* (- 1) one_step)))
 (let ((?x19 (div ?x18 b)))
 (let (($x23 (>= ?x19 0)))
 (not $x23)))))
(assert
 (let ((?x18 (* (- 1) one_step)))
(let ((?x19 (div ?x18 b)))
(let (($x24 (<= ?x19 0)))
(let (($x25 (not $x24)))
(let (($x26 (not $x25)))
(not $x26)))))))
(check-sat)
