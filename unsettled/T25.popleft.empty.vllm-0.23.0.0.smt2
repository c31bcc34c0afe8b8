; T25.popleft.empty on vllm==0.23.0: path 1, claim 1: unsat means proved
(set-logic ALL)
; benchmark generated from python API
(set-info :status unknown)
(declare-fun n () Int)
(declare-fun at_q (Int) Int)
(declare-fun next_free_block_q (Int) Int)
(declare-fun prev_free_block_q (Int) Int)
(declare-fun place_q (Int) Int)
(declare-fun ref_cnt_q (Int) Int)
(declare-fun any_block_q () Int)
(assert
 (= 0 n))
(assert
 (let ((?x0 (at_q n)))
 (let (($x1 (= ?x0 (- 3))))
 (let ((?x2 (at_q (- 1))))
 (let (($x3 (= ?x2 (- 2))))
 (let (($x4 (>= n 0)))
 (and $x4 $x3 $x1)))))))
(assert
 (let (($x5 (=> (>= (- 1) 0) (= (prev_free_block_q (at_q (- 1))) (at_q (- (- 1) 1))))))
 (let (($x6 (=> (< (- 1) n) (= (next_free_block_q (at_q (- 1))) (at_q (+ (- 1) 1))))))
 (let ((?x2 (at_q (- 1))))
 (let ((?x7 (place_q ?x2)))
 (let (($x8 (= ?x7 (- 1))))
 (let (($x9 (and (and (distinct ?x2 (- 1)) true) $x8 $x6 $x5 (=> (= (- 1) (- 1)) (= (prev_free_block_q ?x2) (- 1))) (=> (= (- 1) n) (= (next_free_block_q ?x2) (- 1))))))
 (=> (and (>= (- 1) (- 1)) (<= (- 1) n)) $x9))))))))
(assert
 (let ((?x10 (next_free_block_q any_block_q)))
(let (($x11 (and (= (prev_free_block_q any_block_q) (prev_free_block_q any_block_q)) (= (ite (= (- 2) any_block_q) (- 3) ?x10) ?x10) (= (ref_cnt_q any_block_q) (ref_cnt_q any_block_q)))))
(not $x11))))
(check-sat)
