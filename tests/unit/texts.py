"""Twenty varied texts, written for these tests."""

TEXTS = {
    "one word": "Hello",
    "sentence": "The bank by the river lent the farmer a boat.",
    "pronoun": "The trophy did not fit into the suitcase because it was too large.",
    "repetition": "buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo",
    "numbers": "On 3 May 1999, 1,204 of 5,678 samples (21.2 %) were above 0.05 mg/l.",
    "punctuation": 'Wait... what?! -- "No", (she) said; [really] {so}: yes/no & more*',
    "code": "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; } // dot product",
    "markup": "<img src=x onerror=alert(1)> <script>alert('x')</script> &amp; <b>bold</b>",
    "german": "Die Straßenbahn fährt über die Brücke; Größe und Maß sind überprüft.",
    "french": "L'été dernier, où étiez-vous ? Ça m'a coûté vingt-trois euros, hélas.",
    "accents": "Crème brûlée, jalapeño, naïve façade, Zoë’s résumé, São Paulo.",
    "chinese": "我喜欢在北京的公园里散步。",
    "japanese": "東京タワーは高いです。カタカナとひらがな。",
    "korean": "한국어 문장은 띄어쓰기를 합니다.",
    "arabic": "مرحبا بالعالم، كيف حالك اليوم؟",
    "hebrew": "שלום עולם, מה שלומך היום?",
    "emoji": "I ❤️ this 👩🏽‍🚀🚀 so much 😂😂, greetings from 🇫🇷 and 👨‍👩‍👧‍👦!",
    "long word": "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "spaces": "  many   spaces\tand\ttabs\nand\n\nlines  ",
    "long": " ".join(
        f"In sentence {i} the keeper of the lighthouse wrote that the sea was {word} and the lamp burned until morning."
        for i, word in enumerate(["calm", "rough", "grey", "silent", "high", "cold", "dark", "bright"])
    ),
}
