"""The systems that the experiments compare. Each function translates and scores a test set."""

from collections.abc import Sequence

from nearmt.experiments.paper.domain import Domain, TestSet
from nearmt.experiments.paper.lab import Lab, Result
from nearmt.methods.metak import FEATURES
from nearmt.methods.mixture import Uniform


def base(lab: Lab, test: Domain | TestSet) -> Result:
    """The model alone."""
    return lab.score(None, _test_of(test), None)


def vanilla_fixed(lab: Lab, domain: Domain, k: int) -> Result:
    """Vanilla with the paper's T and share."""
    return lab.score(domain, domain.test, lab.fixed_vanilla(domain, k))


def vanilla_tuned(lab: Lab, domain: Domain, k: int, test: Domain | TestSet | None = None) -> Result:
    """Vanilla with T and share tuned on the domain for k neighbours."""
    return lab.score(domain, _test_of(test or domain), lab.tuned_vanilla(domain, k)[0])


def vanilla_best(lab: Lab, domain: Domain) -> Result:
    """Vanilla with k, T and share tuned on the domain."""
    return lab.score(domain, domain.test, lab.best_vanilla(domain))


def uniform(lab: Lab, domain: Domain, k: int) -> Result:
    """Equal weight for every number of neighbours, with adaptive's T."""
    return lab.score(domain, domain.test, Uniform(k, lab.temperature(domain)))


def adaptive(
    lab: Lab,
    domain: Domain,
    k: int,
    seed: int | None = None,
    *,
    store: Domain | None = None,
    test: Domain | TestSet | None = None,
    hidden: int = 32,
    features: Sequence[str] = FEATURES,
    sentences: int | None = None,
) -> Result:
    """Meta-k of a domain, with the domain's own store and test set unless others are given.

    With another store, out-of-domain damping is off.
    """
    network = lab.network(domain, k, seed, hidden=hidden, features=features, sentences=sentences)
    if store is not None and store is not domain:
        network.damping = None  # it was fitted to the distances in the domain's own store
    return lab.score(store or domain, _test_of(test or domain), network)


def shuffled(lab: Lab, domain: Domain) -> Result:
    """Meta-k trained and used with shuffled values, which are unrelated to their keys."""
    network = lab.network(domain, lab.config.max_k, shuffled=True)
    return lab.score(domain, domain.test, network, shuffled=True)


def variant(lab: Lab, domain: Domain, name: str, seed: int) -> Result:
    """A published variant."""
    return lab.score(domain, domain.test, lab.variant(domain, name, seed))


def _test_of(test: Domain | TestSet) -> TestSet:
    return test.test if isinstance(test, Domain) else test
