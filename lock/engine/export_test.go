package engine

// KnownGrants returns how many grants the engine remembers.
func (e *Engine) KnownGrants() int {
	e.grants.mu.Lock()
	defer e.grants.mu.Unlock()
	return len(e.grants.byName)
}
