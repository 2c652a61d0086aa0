package v1alpha1

// RequestAnnotation asks, in an update by the holder, for what the fields alone cannot
// say: [RequestRenewal] or [RequestHandOff]. It is taken off on admission and never
// stored, so that "kubectl annotate lock NAME forrst.dev/request=renew" works each time.
const RequestAnnotation = "forrst.dev/request"

// The values of [RequestAnnotation].
const (
	// RequestRenewal replaces the remaining time by a whole ttl.
	RequestRenewal = "renew"
	// RequestHandOff grants the lock, which its holder is done with, to the new
	// spec.owner of the same holder, or to a new [AcquisitionAnnotation] under the same
	// owner token.
	RequestHandOff = "hand-off"
)

// AcquisitionAnnotation identifies one acquisition by a client whose Locks are stamped
// on admission. By it the client knows its own grant after the answer was lost, when
// others may be using the same owner token. A new one asks for a grant: it is admitted
// where a take-over or a hand-off is.
const AcquisitionAnnotation = "forrst.dev/acquisition"

// ForceReleaseReasonAnnotation says why a lock that somebody else holds is to be ended:
// whoever has the verb force-release on locks sets it, and then deletes the lock. At
// most 1024 characters, and more than white space. Only a delete by force asks for it. It
// goes with the grant that it was said about: a new grant never has it, and what a holder
// says about a lock of its own is taken off on admission.
const ForceReleaseReasonAnnotation = "forrst.dev/force-release-reason"
