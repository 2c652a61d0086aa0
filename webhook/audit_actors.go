package webhook

import "container/list"

// awaitedActors has the awaited changes by namespace and actor, the oldest first. It finds the one that
// has to make room, so that one that has many cannot push out the changes of another.
type awaitedActors map[string]*awaitedNamespace

// awaitedNamespace has the changes of the locks of one namespace: a user who may edit it can act under
// any number of names there, but not elsewhere.
type awaitedNamespace struct {
	count  int
	actors map[awaitedActor]*list.List
}

// awaitedActor is a user. Its forced releases are kept apart.
type awaitedActor struct {
	name     string
	isForced bool
}

func actorOf(change *awaitedChange) awaitedActor {
	return awaitedActor{change.actor, change.isForced()}
}

func (a awaitedActors) add(change *awaitedChange) {
	namespace := a[change.fact.name.Namespace]
	if namespace == nil {
		namespace = &awaitedNamespace{actors: map[awaitedActor]*list.List{}}
		a[change.fact.name.Namespace] = namespace
	}
	changes := namespace.actors[actorOf(change)]
	if changes == nil {
		changes = list.New()
		namespace.actors[actorOf(change)] = changes
	}
	change.place = changes.PushBack(change)
	namespace.count++
}

func (a awaitedActors) remove(change *awaitedChange) {
	namespace := a[change.fact.name.Namespace]
	changes := namespace.actors[actorOf(change)]
	changes.Remove(change.place)
	if changes.Len() == 0 {
		delete(namespace.actors, actorOf(change))
	}
	namespace.count--
	if namespace.count == 0 {
		delete(a, change.fact.name.Namespace)
	}
}

// oldestOfMost returns the oldest change of the actor that has most, in the namespace that has most. Forced
// releases come last. There must be a change.
func (a awaitedActors) oldestOfMost() *awaitedChange {
	var crowded *awaitedNamespace
	for _, each := range a {
		if crowded == nil || each.count > crowded.count {
			crowded = each
		}
	}
	var most *list.List
	isForced := false
	for actor, changes := range crowded.actors {
		if most == nil || isForced && !actor.isForced || isForced == actor.isForced && changes.Len() > most.Len() {
			most, isForced = changes, actor.isForced
		}
	}
	oldest, _ := most.Front().Value.(*awaitedChange)
	return oldest
}
