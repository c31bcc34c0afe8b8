; T20.requested on model: forced after TFTFTF decisions: unsat means proved
(set-logic ALL)
; benchmark generated from python API
(set-info :status unknown)
(declare-fun first () Int)
(declare-fun second () Int)
(declare-fun lcm!1 () Int)
(declare-fun requested () Int)
(assert
 (<= 1 first))
(assert
 (<= 1 second))
(assert
 (let (($x0 (<= 1 second)))
 (let (($x1 (<= 1 first)))
 (and $x1 $x0))))
(assert
 (<= 1 lcm!1))
(assert
 (let (($x2 (= first 0)))
 (not $x2)))
(assert
 (let (($x3 (<= first 0)))
 (not $x3)))
(assert
 (let (($x4 (= second 0)))
 (not $x4)))
(assert
 (let (($x5 (<= second 0)))
 (not $x5)))
(assert
 (let (($x6 (<= 1 requested)))
 (not $x6)))
(assert
 (let (($x6 (<= 1 requested)))
(let (($x7 (not $x6)))
(not $x7))))
(check-sat)
