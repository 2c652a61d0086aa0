package v1alpha1

import "time"

// RenewalPolicy says who renews a Lock.
//
// +kubebuilder:validation:Enum=Holder;Operator
type RenewalPolicy string

const (
	// RenewalByHolder leaves the renewal to the holder: a lock that it does not renew expires.
	RenewalByHolder RenewalPolicy = "Holder"
	// RenewalByOperator makes the operator renew the lock for as long as the Lock exists, until its
	// renewalEndTime at most.
	RenewalByOperator RenewalPolicy = "Operator"
)

// MaxOperatorRenewalAnnotation is on a namespace in which locks may have [RenewalByOperator]. Its value is
// for how long after its acquisition the operator renews such a lock at most, as a duration with units, for
// example "720h". A namespace without it allows no such lock. A lower value, or none, counts at the next renewal of a
// lock; a higher one for locks that are acquired afterwards.
const MaxOperatorRenewalAnnotation = "forrst.dev/max-operator-renewal"

// MinOperatorRenewalTTL is the shortest ttl of a lock with [RenewalByOperator]: another replica must have time
// to go on where one fails.
const MinOperatorRenewalTTL = time.Minute
