package contract

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

func describePages(s *subject) {
	pager := func() lock.Pager {
		GinkgoHelper()
		pager, ok := s.Backend.(lock.Pager)
		if !ok {
			Skip("the backend has no pages")
		}
		return pager
	}
	// read returns the names on each page of a list.
	read := func(ctx context.Context, request lock.PageRequest) (pages [][]string) {
		GinkgoHelper()
		for {
			page, err := pager().ListPage(ctx, s.Namespace, request)
			Expect(err).NotTo(HaveOccurred())
			var names []string
			for index := range page.Locks {
				names = append(names, page.Locks[index].Name)
			}
			pages = append(pages, names)
			if request.Continue = page.Continue; request.Continue == "" {
				return pages
			}
		}
	}
	BeforeEach(func(ctx context.Context) {
		for i := range 7 {
			s.acquired(ctx, by(alice, keyed(fmt.Sprintf("a%d", i))))
		}
		s.acquired(ctx, by(alice, keyed("b")))
	})

	It("have every lock once, in the order of the names", func(ctx context.Context) {
		all := []string{"a0", "a1", "a2", "a3", "a4", "a5", "a6", "b"}
		for limit := 1; limit <= 9; limit++ {
			var names []string
			for _, page := range read(ctx, lock.PageRequest{Limit: limit}) {
				Expect(len(page)).To(BeNumerically("<=", limit))
				names = append(names, page...)
			}
			Expect(names).To(Equal(all), "limit %d", limit)
		}
	})

	It("have the locks whose keys begin with a prefix, also if a page ends within what is read at once", func(ctx context.Context) {
		Expect(read(ctx, lock.PageRequest{Limit: 3, Prefix: "a"})).To(Equal([][]string{{"a0", "a1", "a2"}, {"a3", "a4", "a5"}, {"a6"}}))
		Expect(read(ctx, lock.PageRequest{Limit: 3, Prefix: "c"})).To(Equal([][]string{nil}))
	})

	It("have the locks of one holder", func(ctx context.Context) {
		Expect(read(ctx, lock.PageRequest{Limit: 9, Holder: s.Holder})).To(HaveExactElements(HaveLen(8)))
		Expect(read(ctx, lock.PageRequest{Limit: 9, Holder: "nobody-else"})).To(Equal([][]string{nil}))
	})

	It("with a prefix show what has changed since the page before, if that was of the first that is read at once", func(ctx context.Context) {
		first, err := pager().ListPage(ctx, s.Namespace, lock.PageRequest{Limit: 3, Prefix: "a"})
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Backend.Release(ctx, s.Namespace, "lock:a4", lock.Proof{Owner: alice})).To(Succeed())
		s.acquired(ctx, by(alice, keyed("a7")))
		rest := read(ctx, lock.PageRequest{Limit: 9, Prefix: "a", Continue: first.Continue})
		Expect(rest).To(Equal([][]string{{"a3", "a5", "a6", "a7"}}))
	})

	It("refuse to be continued from nowhere", func(ctx context.Context) {
		_, err := pager().ListPage(ctx, s.Namespace, lock.PageRequest{Limit: 1, Continue: "%"})
		expectRefusal(err, lock.ErrInvalid)
	})
}
