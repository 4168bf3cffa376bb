"""Answers ``kubeletpy plan``: queries the components for what they would do with a pod.

Must never change anything in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.json_patch import MalformedPatch
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import run_together
from kubeletpy.observe.foresee import change, model, start
from kubeletpy.observe.foresee.change import Change, ChangeMethod, Fate, KubectlPatchType
from kubeletpy.observe.foresee.faults import api_refusal, start_faults
from kubeletpy.pods import defaults
from kubeletpy.pods.pod import MalformedPod, Pod
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.pods.shape import pod_problem
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.resources.admission.checks import Admitted, Preempt, Refused, pod_needs
from kubeletpy.resources.allocation.resources import Infeasible
from kubeletpy.resources.placement.model import UNEXPECTED, AllocationRefused
from kubeletpy.volumes.pod_volumes.planned import plan_volumes

if TYPE_CHECKING:
    from kubeletpy.node.eviction.report import EvictionOrder

UID = "00000000-0000-0000-0000-000000000000"
"""Stands for the uid of a pod that does not exist."""
MAX_IMAGES = 50
MAX_REPLICAS = 500
"""Maximum number of replicas of one workload that are judged."""
_RACE = (
    "another pod may come first, and the scheduler decides whether this node gets the pod at all"
)


class Nonsense(ValueError):
    """Raised if a request can't be understood; the message contains the reason."""


class Foreseer(Component):
    """Predicts what this node would do with a new pod, or with a change to one of its pods."""

    node: model.NodeQueries

    async def foresee(self, requested: JSON) -> model.Foreseen:
        """Predict what the node would do.

        Args:
            requested: ``pod``, a manifest, and ``replicas``, the number of such pods; or
                ``namespace``, ``name`` and a ``patch`` of ``type`` ``strategic``, ``merge`` or
                ``json``.

        Raises:
            Nonsense: the manifest is no pod, or there is no pod to be patched.
        """
        if "patch" in requested:
            namespace, name = str(requested.get("namespace")), str(requested.get("name"))
            pods, node_name = self.node.pods, self.node.node_name
            running = pods.lookup(namespace, name, node_name)
            if running is None:
                others = pods.namesakes(name, node_name)
                raise Nonsense(f"no pod {namespace}/{name} on this node{others}")
            return await self._changed(
                running, _patched(running, requested["patch"], _kind(requested))
            )
        manifest = requested.get("pod")
        if not isinstance(manifest, dict):
            raise Nonsense("there is no pod in the request")
        desired = _pod_from_manifest(manifest)
        existing = self.node.pods.by_name(desired.namespace, desired.name)
        if existing is None:
            replicas = requested.get("replicas")
            return await self._new(desired, replicas if isinstance(replicas, int) else 1)
        patch = {"spec": manifest.get("spec") or {}}
        changed = _patched(existing, patch, KubectlPatchType.STRATEGIC)
        return await self._changed(existing, changed)

    async def _new(self, pod: Pod, replicas: int) -> model.Foreseen:
        node = self.node
        if refusal := api_refusal(pod):
            message = f"the API server refuses it: {refusal}"
            return self._answer(pod, Fate(model.ForeseenOutcome.FORBIDDEN, "", message))
        took = model.Durations(node.traces)
        plan = plan_volumes(pod)
        fate, victims, placed = self._admitted(pod, plan.refused)
        if fate.outcome is model.ForeseenOutcome.REFUSED:
            return self._answer(pod, fate, unsure=(_RACE,))
        names = [container["name"] for _, container in pod.all_containers()]
        present = await self._present(pod)
        faults = start_faults(pod, plan, present, node.settings, names)
        image_uses = start.images(pod, _exist(present), names)
        volume_uses = start.volumes(plan)
        acts = [model.Act(each.what, each.why) for each in placed]
        steps = start.acts(pod, volume_uses, image_uses, took)
        return self._answer(
            pod,
            _stuck(faults) or fate,
            faults=faults,
            fits=self._fitting(pod, replicas) if replicas > 1 else None,
            victims=tuple(victim.key for victim in victims),
            acts=(*acts, *steps),
            images=image_uses,
            volumes=volume_uses,
            needs=start.needs(pod, plan),
            squeezed=start.squeezed(node.levels(), pod_needs(pod)),
            evictions=await self._evictions(pod, victims),
            seconds=model.total(steps),
            unsure=(*start.unsure(pod, image_uses), _RACE),
        )

    def _fitting(self, pod: Pod, replicas: int) -> int:
        """Return how many pods like this one the node would admit, one after the other."""
        others = list(self.node.others(pod.uid))
        for number in range(min(replicas, MAX_REPLICAS)):
            metadata = {**pod.object["metadata"], "uid": f"{pod.uid}-{number}"}
            replica = Pod({**pod.object, "metadata": cast(api.ObjectMeta, metadata)})
            verdict, _ = self.node.judge(replica, others)
            if not isinstance(verdict, Admitted):
                return number
            others.append(replica)
        return min(replicas, MAX_REPLICAS)

    def _admitted(self, pod: Pod, refused: str) -> tuple[Fate, Sequence[Pod], Sequence[Decision]]:
        try:
            if refused:
                raise AllocationRefused(refused)
            placed = self.node.place(pod)
            verdict, victims = self.node.judge(pod, self.node.others(pod.uid))
            if isinstance(verdict, Refused):
                raise AllocationRefused(verdict.rejection.message, verdict.rejection.reason)
        except (AllocationRefused, ValueError) as error:
            reason = error.reason if isinstance(error, AllocationRefused) else UNEXPECTED
            return Fate(model.ForeseenOutcome.REFUSED, reason, str(error)), (), ()
        preempts = isinstance(verdict, Preempt)
        outcome = model.ForeseenOutcome.PREEMPTS if preempts else model.ForeseenOutcome.RUNS
        return Fate(outcome), victims, placed

    async def _changed(self, before: Pod, after: Pod) -> model.Foreseen:
        found = change.changes(before, after, memory_volumes=self.node.memory_volumes)
        if not found:
            return self._answer(before, Fate(model.ForeseenOutcome.UNCHANGED))
        if before.is_static:
            message = "another manifest is another pod: this one ends, and that one is started"
            return self._answer(before, Fate(model.ForeseenOutcome.RECREATES, "", message))
        if (fate := change.forbidden(before, after, found)) is not None:
            return self._answer(before, fate)
        if before.being_deleted:
            fate = Fate(model.ForeseenOutcome.ENDS, "", "it is being deleted")
            return self._answer(before, fate)
        return await self._synced(before, after, found)

    async def _synced(self, before: Pod, after: Pod, found: Sequence[Change]) -> model.Foreseen:
        node, took = self.node, model.Durations(self.node.traces)
        victims: Sequence[Pod] = ()
        allocated = node.allocated(after)
        resizes = any(each.way is ChangeMethod.RESIZE for each in found)
        if resizes:
            resized, fate, victims = self._resized(after)
            if fate is not None:
                return self._answer(before, fate, hints=change.hints(found))
            allocated = resized
        status = node.seen(before.uid)
        if status is None:
            message = "the runtime has not reported on it yet"
            return self._answer(before, Fate(model.ForeseenOutcome.UNKNOWN, "", message))
        probes = node.probes(before)
        as_is = node.intends(node.allocated(before), status, probes)
        to_be = node.intends(allocated, status, probes)
        restarts = change.restarted(as_is, to_be)
        present = await self._present(after)
        images = start.images(after, _exist(present), restarts)
        faults = start_faults(after, plan_volumes(after), present, node.settings, restarts)
        return self._answer(
            before,
            _stuck(faults) or change.fate(as_is, to_be),
            faults=faults,
            victims=tuple(victim.key for victim in victims),
            restarts=restarts,
            acts=tuple(change.acts(as_is, to_be, images, took)),
            images=images,
            evictions=await self._evictions(allocated, victims) if resizes else (),
            hints=change.hints(found),
        )

    def _resized(self, after: Pod) -> tuple[Pod, Fate | None, Sequence[Pod]]:
        try:
            resized = self.node.resized(after)
            if isinstance(resized, Infeasible):
                fate = Fate(model.ForeseenOutcome.INFEASIBLE, "Infeasible", resized.message)
                return after, fate, ()
            verdict, victims = self.node.judge(resized, self.node.others(after.uid))
        except ValueError as error:
            raise Nonsense(str(error)) from error
        if isinstance(verdict, Refused):
            reason, message = verdict.rejection.reason, verdict.rejection.message
            return after, Fate(model.ForeseenOutcome.DEFERRED, reason, message), ()
        return resized, None, victims

    async def _evictions(self, pod: Pod, victims: Sequence[Pod]) -> tuple[EvictionOrder, ...]:
        return tuple(await self.node.evictions(pod, {victim.uid for victim in victims}))

    async def _present(self, pod: Pod) -> dict[str, model.PresentImage | None]:
        """Return image -> what the node has of it, or None if the runtime did not report it."""
        names = dict.fromkeys(each.get("image") or "" for _, each in pod.all_containers())
        images = list(names)[:MAX_IMAGES]
        found = await run_together(*(self._present_image(name) for name in images))
        return dict(zip(images, found, strict=True))

    async def _present_image(self, image: str) -> model.PresentImage | None:
        try:
            answer = await self.node.image_status(cri.ImageSpec(image=image))
        except CRIError:
            return None
        found = answer.image
        user = found.uid.value if found.HasField("uid") else found.username or None
        return model.PresentImage(bool(found.id), user)

    def _answer(self, pod: Pod, fate: Fate, **more: Any) -> model.Foreseen:
        return model.Foreseen(
            pod.namespace,
            pod.name,
            self.node.node_name,
            fate.outcome,
            fate.reason,
            fate.message,
            **more,
        )


def _exist(images: Mapping[str, model.PresentImage | None]) -> dict[str, bool | None]:
    return {name: None if found is None else found.exists for name, found in images.items()}


def _stuck(faults: Sequence[model.StartFault]) -> Fate | None:
    """Return the fate of a pod with faults, with the reason of the first; None without faults."""
    if not faults:
        return None
    first = faults[0]
    return Fate(model.ForeseenOutcome.STUCK, first.reason, f"{first.subject}: {first.message}")


def _pod_from_manifest(manifest: JSON) -> Pod:
    metadata = manifest.get("metadata")
    if manifest.get("kind") != "Pod" or not isinstance(metadata, dict):
        raise Nonsense("it is no pod: kind is not Pod, or it has no metadata")
    filled = {"namespace": "default", "uid": UID, **metadata}
    return _pod({**manifest, "metadata": filled, "status": {}})


def _patched(pod: Pod, patch: Any, kind: KubectlPatchType) -> Pod:
    try:
        return _pod(change.patched(cast(JSON, pod.object), patch, kind))
    except MalformedPatch as error:
        raise Nonsense(str(error)) from error


def _kind(requested: JSON) -> KubectlPatchType:
    name = requested.get("type") or KubectlPatchType.STRATEGIC
    try:
        return KubectlPatchType(name)
    except ValueError as error:
        known = ", ".join(KubectlPatchType)
        raise Nonsense(f"a patch is of type {known}, not {name}") from error


def _pod(obj: JSON) -> Pod:
    if problem := pod_problem(obj):
        raise Nonsense(f"it is no pod: {problem}")
    try:
        return Pod(cast(api.Pod, {**obj, "spec": defaults.pod_spec(obj.get("spec") or {})}))
    except (MalformedPod, ValueError) as error:
        raise Nonsense(f"it is no pod: {error}") from error
