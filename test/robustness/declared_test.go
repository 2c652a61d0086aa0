package robustness_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// declaredNamespace has the locks that the operator renews. No client takes them.
const declaredNamespace = "declared"

// declare makes locks whose first renewal is due: half of their ttl is over. The ttl is longer than any fault, so each outlasts
// them all.
func (c *cluster) declare(ctx context.Context, options options) error {
	ttl := v1alpha1.MinOperatorRenewalTTL
	if options.isLong || !options.judgesLiveness {
		ttl = 15 * time.Minute
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: declaredNamespace, Annotations: map[string]string{v1alpha1.MaxOperatorRenewalAnnotation: "720h"},
	}}
	if err := c.admin.Create(ctx, namespace); err != nil {
		return err
	}
	for number := range 5 {
		lock := rules.Grant(declaredNamespace, rules.Acquisition{Key: fmt.Sprintf("declared-%d", number), Owner: "repository", Holder: "admin", TTL: ttl},
			rules.DefaultLimits(), time.Now().Add(-ttl/2))
		lock.Spec.RenewalPolicy = v1alpha1.RenewalByOperator
		if err := c.admin.Create(ctx, lock); err != nil {
			return err
		}
		c.declared = append(c.declared, lock)
	}
	return nil
}

// checkDeclared checks that no lock has lapsed which the operator renews, and waits until each is renewed in time.
func (c *cluster) checkDeclared(ctx context.Context) (violations []string) {
	for _, made := range c.declared {
		for {
			var lock v1alpha1.Lock
			err := c.admin.Get(ctx, client.ObjectKeyFromObject(made), &lock)
			if client.IgnoreNotFound(err) == nil && (lock.UID != made.UID || !lock.Spec.AcquireTime.Equal(made.Spec.AcquireTime)) {
				violations = append(violations, fmt.Sprintf("declared: %s has lapsed, which the operator renews", made.Name))
				break
			}
			left := time.Duration(0)
			if err == nil {
				left = time.Until(lock.Spec.ExpireTime.Time)
			}
			if left > made.Spec.TTL.Duration/2 {
				break
			}
			if !pause(ctx, retry) {
				violations = append(violations, fmt.Sprintf("declared: %s is not renewed, with %s left: %v", made.Name, left, err))
				break
			}
		}
	}
	return violations
}
