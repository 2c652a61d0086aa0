package server

// idleList has connections in the order in which they were added. Each call of a connection moves it
// in and out, so that must not allocate memory.
type idleList struct {
	front, back *connection
	count       int
}

// pushBack adds a connection that is not in the list.
func (l *idleList) pushBack(c *connection) {
	c.isIdle, c.before = true, l.back
	if l.back == nil {
		l.front = c
	} else {
		l.back.after = c
	}
	l.back = c
	l.count++
}

// remove takes a connection out, if it is in the list.
func (l *idleList) remove(c *connection) {
	if !c.isIdle {
		return
	}
	if c.before == nil {
		l.front = c.after
	} else {
		c.before.after = c.after
	}
	if c.after == nil {
		l.back = c.before
	} else {
		c.after.before = c.before
	}
	c.isIdle, c.before, c.after = false, nil, nil
	l.count--
}
