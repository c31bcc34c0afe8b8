; T16.refusal on impl: claim 0 on path 1: unsat means proved
(set-logic ALL)
; benchmark generated from python API
(set-info :status unknown)
(declare-fun b () Int)
(declare-fun held () Int)
(declare-fun c () Int)
(declare-fun n () Int)
(declare-fun free () Int)
(assert
 (<= 1 b))
(assert
 (<= 0 held))
(assert
 (<= 0 c))
(assert
 (<= 1 n))
(assert
 (<= 0 free))
(assert
 (let ((?x0 (+ c n)))
 (>= 1000000 ?x0)))
(assert
 (let (($x1 (= b 0)))
 (not $x1)))
(assert
 (let (($x2 (<= b 0)))
 (not $x2)))
(assert
 (let ((?x3 (* (- 1) held)))
 (let ((?x4 (* (- 1) n)))
 (let ((?x5 (* (- 1) c)))
 (let ((?x6 (+ ?x5 ?x4)))
 (let ((?x7 (div ?x6 b)))
 (let ((?x8 (* (- 1) ?x7)))
 (let ((?x9 (+ ?x8 ?x3)))
 (let (($x10 (<= ?x9 0)))
 (not $x10))))))))))
(assert
 (let ((?x3 (* (- 1) held)))
 (let ((?x4 (* (- 1) n)))
 (let ((?x5 (* (- 1) c)))
 (let ((?x6 (+ ?x5 ?x4)))
 (let ((?x7 (div ?x6 b)))
 (let ((?x8 (* (- 1) ?x7)))
 (let ((?x9 (+ ?x8 ?x3)))
 (let (($x11 (<= 0 ?x9)))
 (let (($x12 (not $x11)))
 (not $x12)))))))))))
(assert
 (let (($x13 (<= n 0)))
 (not $x13)))
(assert
 (let (($x14 (<= 0 n)))
 (let (($x15 (not $x14)))
 (not $x15))))
(assert
 (let (($x16 (= n 0)))
 (not $x16)))
(assert
 (let (($x17 (<= c 1000000000)))
 (let (($x18 (not $x17)))
 (not $x18))))
(assert
 (let ((?x0 (+ c n)))
 (let (($x19 (<= ?x0 1000000000)))
 (let (($x20 (not $x19)))
 (not $x20)))))
(assert
 (let ((?x4 (* (- 1) n)))
 (let ((?x5 (* (- 1) c)))
 (let ((?x6 (+ ?x5 ?x4)))
 (let ((?x7 (div ?x6 b)))
 (let ((?x8 (* (- 1) ?x7)))
 (let (($x21 (<= ?x8 free)))
 (not $x21))))))))
(assert
 (let ((?x4 (* (- 1) n)))
 (let ((?x5 (* (- 1) c)))
 (let ((?x6 (+ ?x5 ?x4)))
 (let ((?x7 (div ?x6 b)))
 (let ((?x8 (* (- 1) ?x7)))
 (let (($x22 (<= ?x8 held)))
 (not $x22))))))))
(assert
 (let ((?x3 (* (- 1) held)))
 (let ((?x4 (* (- 1) n)))
 (let ((?x5 (* (- 1) c)))
 (let ((?x6 (+ ?x5 ?x4)))
 (let ((?x7 (div ?x6 b)))
 (let ((?x8 (* (- 1) ?x7)))
 (let ((?x9 (+ ?x8 ?x3)))
 (let (($x23 (<= ?x9 free)))
 (not $x23))))))))))
(assert
 (let ((?x24 (div (- (+ c n)) b)))
(let ((?x25 (- ?x24)))
(let ((?x26 (- ?x25 held)))
(let ((?x27 (+ 0 ?x26)))
(let (($x28 (> ?x27 free)))
(let (($x29 (= true $x28)))
(not $x29))))))))
(check-sat)
