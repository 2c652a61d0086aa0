package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// directCreate creates locks of new keys with one identity and deletes them with the
// operator's, so only the creator differs between contenders.
type directCreate struct {
	objects, operator lockObjects
	owner             string
	make              func(key, owner string) *v1alpha1.Lock
	created           int
	name              string
}

func newDirectCreate(name string, config, operator *rest.Config, object func(key, owner string) *v1alpha1.Lock) (contender, error) {
	objects, err := newLockObjects(config)
	if err != nil {
		return contender{}, err
	}
	deleting, err := newLockObjects(operator)
	if err != nil {
		return contender{}, err
	}
	return contender{name: name, resource: "locks", open: func(_ context.Context, client int) (locker, error) {
		return &directCreate{objects: objects, operator: deleting, owner: ownerOf(client), make: object}, nil
	}}, nil
}

func (d *directCreate) acquire(ctx context.Context, key string) error {
	// The webhook's cache may still contain a key that was just released. The webhook would
	// then read it live.
	d.created++
	object := d.make(fmt.Sprintf("%s-%d", key, d.created), d.owner)
	d.name = object.Name
	_, err := d.objects.Create(ctx, object, metav1.CreateOptions{})
	return err
}

func (d *directCreate) release(ctx context.Context, _ string) error {
	return d.operator.Delete(ctx, d.name, metav1.DeleteOptions{})
}

func (d *directCreate) close() {}

// directCreates measures the cost of the webhook for a create.
func directCreates(clients int) func(context.Context, *lab, *report) error {
	return func(ctx context.Context, l *lab, r *report) error {
		bare, err := newDirectCreate("create + delete, not admitted", l.operator, l.operator, stampedLock)
		if err != nil {
			return err
		}
		admitted, err := newDirectCreate("create, admitted + delete", l.user, l.operator, declaredLock)
		if err != nil {
			return err
		}
		results, err := l.compare(ctx, &comparison{
			name: fmt.Sprintf("direct create, %d", clients), clients: clients,
			rounds: l.options.roundsOf(30), slice: 300 * time.Millisecond,
			contenders: []contender{bare, admitted},
		})
		if err != nil {
			return err
		}
		without, with := results[bare.name], results[admitted.name]
		for _, each := range []*result{without, with} {
			each.total.latencies = each.total.acquires
		}
		r.add(without)
		r.add(with,
			atMost("create with webhook / without, p50", float64(median(with.total.acquires))/float64(median(without.total.acquires)), 1.6, ""),
			atMost("reads per create", with.requests.reads/float64(max(1, with.counted)), 0.01, ""))
		return nil
	}
}
