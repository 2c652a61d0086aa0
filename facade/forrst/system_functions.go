package forrst

// systemVersion is the version of every system function (section 6.2).
const systemVersion = "1.0.0"

// systemFunctions returns the functions of section 9 and those of other extensions.
func (h *Handler) systemFunctions() []Function {
	return []Function{h.ping(), h.health(), h.capabilities(), h.describe(), h.discoveryDescribe(), h.cancelFunction()}
}

// systemNames returns the spellings of a system function (section 9).
func systemNames(extension, name string) []string {
	return []string{
		"urn:cline:forrst:fn:" + name,
		extensionFunction(extension, name),
		"forrst." + name,
	}
}

func extensionFunction(extension, name string) string {
	return "urn:cline:forrst:ext:" + extension + ":fn:" + name
}
