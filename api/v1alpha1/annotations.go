package v1alpha1

// RequestAnnotation asks, in an update by the holder, for what the fields alone cannot
// say: [RequestRenewal] or [RequestHandOff]. Admission removes it, so it is never stored
// and "kubectl annotate lock NAME forrst.dev/request=renew" works each time.
const RequestAnnotation = "forrst.dev/request"

// The values of [RequestAnnotation].
const (
	// RequestRenewal replaces the remaining time by a whole ttl.
	RequestRenewal = "renew"
	// RequestHandOff releases the lock and grants it, in the same write, to the new
	// spec.owner of the same holder, or to a new [AcquisitionAnnotation] under the same
	// owner token.
	RequestHandOff = "hand-off"
)

// AcquisitionAnnotation identifies one acquisition by a client whose Locks are stamped
// on admission. A client whose answer was lost finds its own grant by it, also where
// several clients use the same owner token. A new value asks for a grant: admission allows
// it where it allows a take-over or a hand-off.
const AcquisitionAnnotation = "forrst.dev/acquisition"

// ForceReleaseReasonAnnotation says why a user ends a lock that another user holds. A user
// with the verb force-release on locks sets it and then deletes the lock. At most 1024
// characters, at least one of them not white space. Only a forced release needs it. It
// belongs to one grant: a new grant never has it, and admission removes it where a holder
// sets it on its own lock.
const ForceReleaseReasonAnnotation = "forrst.dev/force-release-reason"

// ConnectionAnnotation identifies the connection of its holder for as long as which a façade renews a lock. It belongs to one
// grant. Another connection of the holder that takes the lock up replaces it. A UUID.
const ConnectionAnnotation = "forrst.dev/connection"
