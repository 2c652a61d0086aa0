// Package guard lets only the holder of a lock write the objects that the lock guards, see
// [v1alpha1.LockSpec].Guards.
//
// The API server asks [Admission] about objects of the resources and namespaces, and about the users,
// that config/guards/webhook.yaml does not leave out. An index of the cached locks answers for objects without a
// guard. A refusal is confirmed by a read of the lock first, so a cache that is behind refuses no
// write that is free. What it admits too much is closed by the fence, config/guards/fence.yaml:
// docs/guards.md says exactly what is guaranteed.
package guard
