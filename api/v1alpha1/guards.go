package v1alpha1

// A namespace whose objects locks may guard has the label [GuardsLabel] with the value
// [GuardsEnabled].
const (
	GuardsLabel   = "forrst.dev/guards"
	GuardsEnabled = "enabled"
)

// FencedByAnnotation puts an object behind a fence: the API server accepts a change of the object
// only with a [FencingTokenAnnotation] that is not lower than the stored one. The value is the key
// whose grants number the tokens: that of a lock of scope Global, or function and key of another
// lock, joined by a colon.
const FencedByAnnotation = "forrst.dev/fenced-by"
