package lock

// KnownGrants returns how many grants the engine remembers.
func KnownGrants(engine *Engine) int {
	engine.grants.mu.Lock()
	defer engine.grants.mu.Unlock()
	return len(engine.grants.byName)
}
