package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/cli/tokenfile"
	"forrst.dev/lock-operator/lock"
)

// grantOptions are what "acquire", "renew" and "release" share: where the proof of the grant is kept, and
// how to print it.
type grantOptions struct {
	*session.Session

	ownerFile string
	ownerFD   int
	output    string
}

func (o *grantOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.ownerFile, "owner-file", "", "File for the owner token, which proves that you hold the lock. Default: a file of your own, for each cluster, namespace and KEY")
	flags.IntVar(&o.ownerFD, "owner-fd", -1, "File descriptor for the owner token, such as 3, instead of a file")
	flags.StringVarP(&o.output, "output", "o", "", "Output format: json or name")
}

func (o *grantOptions) checkOutput() error {
	switch o.output {
	case "", "json", "name":
		return nil
	}
	return failure.Usagef("-o is %q, and may be json or name", o.output)
}

// client returns the locks of the session.
func (o *grantOptions) client(ctx context.Context) (*lock.Client, error) {
	backend, err := o.Backend(ctx)
	if err != nil {
		return nil, err
	}
	return lock.NewClient(backend, o.Namespace()), nil
}

// place returns where the owner token of the key is kept.
func (o *grantOptions) place(key string) (tokenfile.Place, error) {
	switch {
	case o.ownerFile != "" && o.ownerFD >= 0:
		return tokenfile.Place{}, failure.Usagef("--owner-file and --owner-fd name two places for one owner token")
	case o.ownerFD >= 0:
		return tokenfile.Place{Descriptor: &o.ownerFD}, nil
	case o.ownerFile != "":
		return tokenfile.Place{Path: o.ownerFile}, nil
	}
	server, err := o.Server()
	if err != nil {
		return tokenfile.Place{}, err
	}
	place, err := tokenfile.Default(o.Getenv, server, o.Namespace(), v1alpha1.FullKeyOf(key))
	if err != nil {
		return tokenfile.Place{}, failure.New(failure.Usage, err.Error(), "name a file for it by --owner-file")
	}
	return place, nil
}

// proof reads the proof of the key.
func (o *grantOptions) proof(ctx context.Context, key string) (tokenfile.Place, tokenfile.Proof, error) {
	place, err := o.place(key)
	if err != nil {
		return place, tokenfile.Proof{}, err
	}
	proof, err := place.Read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return place, tokenfile.Proof{}, o.noProof(ctx, key, place)
	case err != nil:
		return place, tokenfile.Proof{}, failure.Usagef("%v", err)
	}
	if err := proof.IsFor(o.Namespace(), v1alpha1.FullKeyOf(key)); err != nil {
		return place, tokenfile.Proof{}, failure.Usagef("%s: %v", place, err)
	}
	return place, proof, nil
}

// shown returns a proof as backends want it.
func shown(proof tokenfile.Proof) lock.Proof {
	return lock.Proof{Owner: proof.Owner, FencingToken: proof.FencingToken}
}

// noProof says what to do where there is no owner token, as of a lock that acquire has not taken.
func (o *grantOptions) noProof(ctx context.Context, key string, place tokenfile.Place) error {
	shown := terminal.Visible(key)
	what, elsewhere := fmt.Sprintf("there is no owner token of %s: no file %s", shown, place), "if the owner token is elsewhere, name the file by --owner-file"
	if o.isMine(ctx, key) {
		return failure.New(failure.NotHeld, "you hold "+shown+", and "+what, "stop the program that holds it, or end the lock under it: "+o.Command("free", key), elsewhere)
	}
	if err := v1alpha1.ValidateKey(key); err != nil {
		return failure.New(failure.NotHeld, fmt.Sprintf("%s; the KEY %v", what, err), elsewhere)
	}
	return failure.New(failure.NotHeld, what, "take the lock first: "+o.Command("acquire", key), elsewhere)
}

// isMine reports whether the user is known to hold the lock. A façade does not tell.
func (o *grantOptions) isMine(ctx context.Context, key string) bool {
	cluster, err := o.Cluster()
	if err != nil {
		return false
	}
	held := &v1alpha1.Lock{}
	err = cluster.Get(ctx, client.ObjectKey{Namespace: o.Namespace(), Name: v1alpha1.FullKeyOf(key).ObjectName()}, held)
	return err == nil && locks.IsHeld(held, o.Now()) && ownsLock(ctx, o.Session, held)
}

// ended turns the error of a renewal or a release into one that says that the grant has ended, and
// removes its proof from the private folder, if that is so.
func (o *grantOptions) ended(key string, place tokenfile.Place, proof tokenfile.Proof, err error) error {
	if !errors.Is(err, lock.ErrNotHeld) && !errors.Is(err, lock.ErrOwnerMismatch) && !errors.Is(err, lock.ErrStale) {
		return err
	}
	if place.IsPrivate {
		_ = place.Remove(proof) // It proves nothing any more.
	}
	return lost(v1alpha1.FullKeyOf(key), err)
}

// lost says that the caller does not hold the lock any more.
func lost(key v1alpha1.FullKey, err error) error {
	why := "it has ended"
	switch {
	case errors.Is(err, lock.ErrExpired):
		why = "its ttl ran out"
	case errors.Is(err, lock.ErrOwnerMismatch), errors.Is(err, lock.ErrTakenOver):
		why = "another holder has it"
	}
	return failure.New(failure.NotHeld, fmt.Sprintf("you do not hold %s any more: %s", terminal.Visible(key.Bare()), why), "stop what you do under it: another holder may have begun")
}

// grantOutput is what -o json prints. It never has the owner token.
type grantOutput struct {
	Namespace    string              `json:"namespace,omitempty"`
	Key          string              `json:"key"`
	Name         string              `json:"name"`
	Holder       string              `json:"holder,omitempty"`
	FencingToken int64               `json:"fencingToken,omitempty"`
	TTL          string              `json:"ttl,omitempty"`
	AcquireTime  *v1alpha1.Timestamp `json:"acquireTime,omitempty"`
	ExpireTime   *v1alpha1.Timestamp `json:"expireTime,omitempty"`
	OwnerFile    string              `json:"ownerFile,omitempty"`
	IsReleased   bool                `json:"released,omitempty"`
}

// print tells what was done with the lock.
func (o *grantOptions) print(done string, key v1alpha1.FullKey, info lock.Info, place tokenfile.Place) error {
	switch o.output {
	case "name":
		fmt.Fprintf(o.Out, "lock.%s/%s\n", v1alpha1.GroupVersion.Group, key.ObjectName())
		return nil
	case "json":
		output := grantOutput{
			Namespace: o.Namespace(), Key: key.Bare(), Name: key.ObjectName(), Holder: info.Holder, FencingToken: info.FencingToken,
			AcquireTime: stamp(info.AcquireTime), ExpireTime: stamp(info.ExpireTime), OwnerFile: place.Path,
		}
		if info.TTL > 0 {
			output.TTL = info.TTL.String()
		}
		return o.printJSON(output)
	}
	fmt.Fprintf(o.Out, "%s %s, fencing token %d; it ends %s unless it is renewed or released\n", terminal.Visible(key.Bare()), done, info.FencingToken, o.Times().In(info.ExpireTime))
	return nil
}

func (o *grantOptions) printJSON(value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s\n", content)
	return nil
}

func stamp(at time.Time) *v1alpha1.Timestamp {
	if at.IsZero() {
		return nil
	}
	stamp := v1alpha1.NewTimestamp(at)
	return &stamp
}
