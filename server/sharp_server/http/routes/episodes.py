"""Parked episodes: look at them, have them tried again, give them up."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from sharp_server.api.admin import Operations
from sharp_server.api.messages import parked_episode_message
from sharp_server.api.paging import page
from sharp_server.http import conversion, models
from sharp_server.http.guard import HttpGuard
from sharp_server.http.routes.learners import Name, PageSize, PageToken
from sharp_server.learners.registry import Registry
from sharp_server.runtime.server_state import ServerState

EpisodeNumber = Annotated[int, Path(ge=0, lt=1 << 63, description="The episode's number.")]


def routers(guard: HttpGuard, state: ServerState, registry: Registry, operations: Operations) -> list[APIRouter]:
    """The routes."""
    router = guard.router("admin", "episodes")

    @router.get("/api/learners/{name}/parked")
    async def list_parked_episodes(
        name: Name, page_size: PageSize = 0, page_token: PageToken = ""
    ) -> models.ParkedEpisodes:
        """List the episodes that could not be learned, by number."""
        served = registry.get(name)
        parked, kind = served.backlog.parked(), f"parked {served.uid}"
        chosen, token = page(parked, lambda episode: episode.number, kind, page_size, page_token)
        return models.ParkedEpisodes(
            episodes=[conversion.parked_episode(parked_episode_message(episode)) for episode in chosen],
            next_page_token=token,
        )

    @router.post("/api/learners/{name}/parked/{episode}/retry")
    async def retry_parked_episode(name: Name, episode: EpisodeNumber) -> models.Retried:
        """Put a parked episode back in the queue."""
        served = registry.get(name)
        row = await state.finish(operations.parked.retry(served, episode))
        return models.Retried(episodes_ahead=served.backlog.ahead_of(row))

    @router.post("/api/learners/{name}/parked/{episode}/discard")
    async def discard_parked_episode(name: Name, episode: EpisodeNumber) -> models.Discarded:
        """Give up a parked episode for good."""
        row = await state.finish(operations.parked.discard(registry.get(name), episode))
        return models.Discarded(examples=row.examples)

    return [router]
