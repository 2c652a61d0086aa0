package rest

import (
	"net/http"
	"slices"
	"strings"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
)

// Where the resources are. The parts of a path are decoded one by one, so a key may contain a slash
// as %2F.
const (
	locksPath = "/v1/namespaces/{" + namespacePart + "}/locks"
	lockPath  = locksPath + "/{" + keyPart + "}"
	// Those that wait have a part of their own, since a key may be "waiters".
	lockWaitersPath = lockPath + "/waiters"
	waitersPath     = "/v1/namespaces/{" + namespacePart + "}/waiters"
	// Several locks are a resource under all of their keys, which are in the query.
	acquisitionsPath = "/v1/namespaces/{" + namespacePart + "}/acquisitions"
	feedPath         = "/v1/namespaces/{" + namespacePart + "}/feed"
	// allFeedPath is about the locks of all namespaces.
	allFeedPath = "/v1/feed"
	rightsPath  = "/v1/rights"

	namespacePart = "namespace"
	keyPart       = "key"
)

// doorName is the name of the door in metrics and in the audit.
const doorName = "rest"

// Handler is the REST door to locks. It implements [server.Door] and is safe for concurrent use.
type Handler struct {
	config   Config
	calls    server.Calls
	document []byte
	feeds    feeds
}

// New returns a door, or an error that says what is wrong with config.
func New(config Config) (*Handler, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	document, err := newDocument(config.Locks.MaxTTL(), config.MaxWait)
	if err != nil {
		return nil, err
	}
	return &Handler{
		config: config, document: document,
		calls: server.Calls{
			Server: config.Server, Door: doorName, Access: config.Access, Clock: config.Clock, Logger: config.Logger, MaxBodyBytes: maxRequestBytes,
		},
		feeds: feeds{config: config, open: map[string]*feed{}},
	}, nil
}

// Register implements [server.Door].
func (h *Handler) Register(mux *http.ServeMux) {
	// A browser must not let any web page take locks where a façade asks for no credentials.
	// Other clients do not send what this looks at.
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(h.serveCrossOrigin))
	mux.Handle(locksPath, sameOrigin.Handler(h.serve(namespaceResource)))
	mux.Handle(lockPath, sameOrigin.Handler(h.serve(lockResource)))
	mux.Handle(lockWaitersPath, sameOrigin.Handler(h.serve(lockWaitersResource)))
	mux.Handle(waitersPath, sameOrigin.Handler(h.serve(waitersResource)))
	mux.Handle(acquisitionsPath, sameOrigin.Handler(h.serve(acquisitionsResource)))
	mux.Handle(feedPath, sameOrigin.Handler(h.serve(feedResource)))
	mux.Handle(allFeedPath, sameOrigin.Handler(h.serve(feedResource)))
	mux.Handle(rightsPath, sameOrigin.Handler(h.serve(rightsResource)))
	mux.Handle("/v1/", h.serve(noResource))
	mux.HandleFunc(documentPath, h.serveDocument)
}

// operation is what a method of a resource does.
type operation struct {
	// name is what metrics count it as.
	name string
	// verb is what the caller must be allowed to do with locks. Empty if every caller may ask.
	verb string
	// cost is what the operation costs the API server.
	cost limits.Cost
	// hasBody says that the request has one, which the call finds in its body.
	hasBody bool
	// isAcquisition says that it acquires what its body names.
	isAcquisition bool
	// isOfSet says that it is about several locks.
	isOfSet bool
	// isStream says that the answer is a stream of events.
	isStream bool
	// run does it. The answer is nil if it was sent already.
	run func(c *call) (*answer, error)
}

// Operations, by the names of docs/rest.md.
var (
	acquireLock  = &operation{name: "acquire", verb: access.VerbCreate, cost: limits.Work, hasBody: true, isAcquisition: true, run: (*call).acquire}
	holdLock     = &operation{name: "hold", verb: access.VerbCreate, cost: limits.Work, hasBody: true, isAcquisition: true, isStream: true, run: (*call).acquireAndHold}
	holdAgain    = &operation{name: "hold_again", verb: access.VerbCreate, cost: limits.Upkeep, hasBody: true, isStream: true, run: (*call).renewAndHold}
	renewLock    = &operation{name: "renew", verb: access.VerbCreate, cost: limits.Upkeep, hasBody: true, run: (*call).renew}
	releaseLock  = &operation{name: "release", verb: access.VerbCreate, cost: limits.Upkeep, run: (*call).release}
	forceRelease = &operation{name: "force_release", verb: access.VerbForceRelease, cost: limits.Work, run: (*call).forceRelease}
	acquireSet   = &operation{name: "acquire_all", verb: access.VerbCreate, cost: limits.Work, hasBody: true, isAcquisition: true, isOfSet: true, run: (*call).acquireSet}
	renewSet     = &operation{name: "renew_all", verb: access.VerbCreate, cost: limits.Upkeep, hasBody: true, isOfSet: true, run: (*call).renewSet}
	releaseSet   = &operation{name: "release_all", verb: access.VerbCreate, cost: limits.Upkeep, isOfSet: true, run: (*call).releaseSet}
	getLock      = &operation{name: "get", verb: access.VerbGet, cost: limits.Work, run: (*call).get}
	listLocks    = &operation{name: "list", verb: access.VerbList, cost: limits.Work, run: (*call).list}
	listWaiters  = &operation{name: "list_waiters", verb: access.VerbList, cost: limits.Work, run: (*call).waiters}
	getWaiters   = &operation{name: "get_waiters", verb: access.VerbGet, cost: limits.Work, run: (*call).waiters}
	watchLocks   = &operation{name: "watch", verb: access.VerbWatch, isStream: true, run: (*call).watch}
	followFeed   = &operation{name: "feed", verb: access.VerbWatch, isStream: true, run: (*call).followFeed}
	listRights   = &operation{name: "rights", run: (*call).rights}
)

// resource is what a path names: its methods, each with the operation that its query chooses.
type resource map[string]func(c *call) *operation

var (
	lockResource = resource{
		http.MethodGet:    unlessWatched(getLock),
		http.MethodHead:   always(getLock),
		http.MethodPost:   unlessHeld(acquireLock, holdLock),
		http.MethodPut:    unlessHeld(renewLock, holdAgain),
		http.MethodDelete: unlessForced,
	}
	namespaceResource = resource{
		http.MethodGet:  unlessWatched(listLocks),
		http.MethodHead: always(listLocks),
	}
	acquisitionsResource = resource{
		http.MethodPost:   always(acquireSet),
		http.MethodPut:    always(renewSet),
		http.MethodDelete: always(releaseSet),
	}
	lockWaitersResource = resource{http.MethodGet: always(getWaiters), http.MethodHead: always(getWaiters)}
	waitersResource     = resource{http.MethodGet: always(listWaiters), http.MethodHead: always(listWaiters)}
	feedResource        = resource{http.MethodGet: always(followFeed)}
	rightsResource      = resource{http.MethodGet: always(listRights)}
	// noResource is what other paths name.
	noResource = resource{}
)

func always(chosen *operation) func(*call) *operation {
	return func(*call) *operation { return chosen }
}

func unlessWatched(otherwise *operation) func(*call) *operation {
	return func(c *call) *operation {
		if c.query.flag("watch") {
			return watchLocks
		}
		return otherwise
	}
}

// unlessHeld chooses by whether the connection is to hold the lock.
func unlessHeld(otherwise, held *operation) func(*call) *operation {
	return func(c *call) *operation {
		if c.query.flag("hold") {
			return held
		}
		return otherwise
	}
}

func unlessForced(c *call) *operation {
	if c.query.flag("force") {
		return forceRelease
	}
	return releaseLock
}

// allowed is the header of a refusal of a method.
func (r resource) allowed() string {
	var methods []string
	for method := range r {
		methods = append(methods, method)
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}
