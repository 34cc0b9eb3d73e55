package condition

// form is an upper bound, in bytes or nanoseconds, that depends on how large the elements are that
// the loops around it are at. A loop's elements are not all as large as one of them can be: together they are no
// larger than what they are elements of. So of each loop, from the outermost, there is a factor: that many for each byte of
// its current element.
type form struct {
	fixed float64
	per   []float64 // by the loop's depth; shorter means 0
}

func fixed(n float64) form { return form{fixed: n} }

// share is the size of the current element of the loop at a depth.
func share(depth int) form {
	per := make([]float64, depth+1)
	per[depth] = 1
	return form{per: per}
}

func (a form) at(depth int) float64 {
	if depth < len(a.per) {
		return a.per[depth]
	}
	return 0
}

func (a form) plus(others ...form) form {
	sum := form{fixed: a.fixed, per: append([]float64(nil), a.per...)}
	for _, b := range others {
		sum.fixed += b.fixed
		for len(sum.per) < len(b.per) {
			sum.per = append(sum.per, 0)
		}
		for i, p := range b.per {
			sum.per[i] += p
		}
	}
	return sum
}

func (a form) times(factor float64) form {
	product := form{fixed: a.fixed * factor, per: make([]float64, len(a.per))}
	for i, p := range a.per {
		product.per[i] = p * factor
	}
	return product
}

// or is a bound of both.
func (a form) or(b form) form {
	either := form{fixed: max(a.fixed, b.fixed), per: make([]float64, max(len(a.per), len(b.per)))}
	for i := range either.per {
		either.per[i] = max(a.at(i), b.at(i))
	}
	return either
}

// loop is a comprehension that an expression is in.
type loop struct {
	rounds float64
	whole  form // the size of all elements together, in terms of the loops around this one
}

// loops are those around an expression, the outermost first.
type loops []loop

// close is what a form of the innermost loop comes to in all of its rounds.
func (l loops) close(a form) form {
	inner := len(l) - 1
	per := a.at(inner)
	outer := form{fixed: a.fixed, per: a.per[:min(inner, len(a.per))]}
	return outer.times(l[inner].rounds).plus(l[inner].whole.times(per))
}

// single is what a form of the innermost loop comes to in one round, at the most.
func (l loops) single(a form) form {
	inner := len(l) - 1
	per := a.at(inner)
	return form{fixed: a.fixed, per: a.per[:min(inner, len(a.per))]}.plus(l[inner].whole.times(per))
}

// total is what a form comes to in all rounds of all loops.
func (l loops) total(a form) float64 {
	for len(l) > 0 {
		a = l.close(a)
		l = l[:len(l)-1]
	}
	return a.fixed
}

// less is the one of two bounds that comes to less.
func (l loops) less(a, b form) form {
	if l.total(b) < l.total(a) {
		return b
	}
	return a
}
