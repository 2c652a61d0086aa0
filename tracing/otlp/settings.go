package otlp

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// protocol is how spans are sent.
type protocol string

const (
	// off means that no spans are made.
	off       protocol = ""
	overGRPC  protocol = "grpc"
	overHTTP  protocol = "http/protobuf"
	useOTLP            = "otlp"
	useNone            = "none"
	isTrue             = "true"
	variables          = "OTEL_EXPORTER_OTLP_"
)

// protocolOf returns how spans are to be sent by the environment. The exporters read the rest of it
// themselves. The error says which variable has a value that is not known here.
func protocolOf(getenv func(string) string) (protocol, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), isTrue) {
		return off, nil
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); exporter {
	case useNone:
		return off, nil
	case useOTLP:
	case "":
		if getenv(variables+"ENDPOINT") == "" && getenv(variables+"TRACES_ENDPOINT") == "" {
			return off, nil
		}
	default:
		return off, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is neither %s nor %s", exporter, useOTLP, useNone)
	}
	asked := cmp.Or(getenv(variables+"TRACES_PROTOCOL"), getenv(variables+"PROTOCOL"), string(overHTTP))
	if chosen := protocol(asked); chosen == overGRPC || chosen == overHTTP {
		return chosen, nil
	}
	return off, fmt.Errorf("%sPROTOCOL: %q is neither %s nor %s", variables, asked, overGRPC, overHTTP)
}

// isByParent reports whether the sampler follows the decision of the caller, as it does by default.
func isByParent(getenv func(string) string) bool {
	sampler := strings.ToLower(strings.TrimSpace(getenv("OTEL_TRACES_SAMPLER")))
	return sampler == "" || strings.HasPrefix(sampler, "parentbased_")
}

// checkBounds refuses bounds of the SDK's queue that are not more than zero: the SDK panics for a negative size, and never
// rests without a delay.
func checkBounds(getenv func(string) string) error {
	for _, bound := range []string{"MAX_QUEUE_SIZE", "MAX_EXPORT_BATCH_SIZE", "SCHEDULE_DELAY", "EXPORT_TIMEOUT"} {
		name := "OTEL_BSP_" + bound
		if number, err := strconv.Atoi(getenv(name)); err == nil && number <= 0 {
			return fmt.Errorf("%s: must be more than zero, not %d", name, number)
		}
	}
	return nil
}
