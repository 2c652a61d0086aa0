package envelope

// UnmarshalJSON reads a duration of any length. It is for what services send; for what
// callers send there is [Fields.Duration], which knows limits and says where an error is.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var problems Errors
	fields, ok := ReadObject(data, "", InvalidRequest, &problems)
	if !ok {
		problems.addAt(InvalidRequest, "", "A duration must be an object with value and unit")
		return problems
	}
	read := readDuration(&fields, DurationLimits{AllowZero: true})
	if read == nil {
		return problems
	}
	*d = *read
	return nil
}
