package server

// fifo has values in the order in which they were added. Each request moves some in and out, so that must not
// allocate memory.
type fifo[T any] struct {
	front, back *place[T]
	count       int
}

// place is that of a value in one list at a time, or in none.
type place[T any] struct {
	of            *T
	in            *fifo[T]
	before, after *place[T]
}

// oldest returns the first value, or nil.
func (l *fifo[T]) oldest() *T {
	if l.front == nil {
		return nil
	}
	return l.front.of
}

// pushBack adds a value that is in no list.
func (l *fifo[T]) pushBack(p *place[T], of *T) {
	p.of, p.in, p.before = of, l, l.back
	if l.back == nil {
		l.front = p
	} else {
		l.back.after = p
	}
	l.back = p
	l.count++
}

// remove takes a value out of its list, if it is in one.
func (p *place[T]) remove() {
	if p.in == nil {
		return
	}
	if p.before == nil {
		p.in.front = p.after
	} else {
		p.before.after = p.after
	}
	if p.after == nil {
		p.in.back = p.before
	} else {
		p.after.before = p.before
	}
	p.in.count--
	*p = place[T]{}
}
