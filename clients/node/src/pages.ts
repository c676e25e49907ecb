/** Lists that come in pages, as one sequence. */

/** Reads page after page until the last. */
export async function* pages<T>(
  read: (pageToken: string) => Promise<{ items: readonly T[]; nextPageToken: string }>,
): AsyncGenerator<T, void, undefined> {
  let token = "";
  do {
    const page = await read(token);
    yield* page.items;
    token = page.nextPageToken;
  } while (token !== "");
}
