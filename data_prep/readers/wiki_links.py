"""Internal links of wikitext as visible text, and the names of namespaces and disambiguation templates.

The names are in English, which works on every wiki, and in the languages of the larger Wikipedias. Pages and links with
an unknown name are kept: at worst this adds a caption, it never loses prose.
"""

import re


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(","))


# All are lower case, with spaces for underscores.
FILE_NAMES = _names(
    """file, image, media, datei, bild, fichier, archivo, imagen, immagine, bestand, afbeelding, plik, grafika,
    ficheiro, arquivo, imagem, файл, изображение, зображення, фајл, датотека, слика, ファイル, 画像, 文件,
    檔案, 图像, 圖像, fil, billede, bilde, tiedosto, kuva, soubor, obrázok, súbor, fájl, kép, dosya, resim,
    berkas, gambar, fail, imej, ملف, صورة, קובץ, תמונה, پرونده, تصویر, 파일, 그림, αρχείο, εικόνα, fitxer,
    imatge, fișier, imagine, slika, datoteka, dosiero, bildo, fitxategi, irudi, चित्र, ไฟล์, ภาพ, tập tin,
    hình"""
)
CATEGORY_NAMES = _names(
    """category, kategorie, catégorie, categoría, categoria, categorie, kategoria, kategória, kategori, категория,
    категорія, категорија, カテゴリ, luokka, kategorija, kategorio, kategoriya, تصنيف, קטגוריה, رده, 분류, κατηγορία,
    श्रेणी, หมวดหมู่, 分类, 分類, thể loại"""
)
# For exports before schema 0.6, which do not state the namespace of a page.
OTHER_NAMESPACE_NAMES = _names(
    """talk, user, user talk, wikipedia, wikipedia talk, wp, project, project talk, file talk, image talk, mediawiki,
    mediawiki talk, template, template talk, help, help talk, category talk, portal, portal talk, book, book talk,
    draft, draft talk, module, module talk, gadget, topic, special, timedtext, education program,
    education program talk,
    diskussion, benutzer, vorlage, hilfe, discussion, utilisateur, modèle, aide, discusión, usuario, plantilla, ayuda,
    discussione, utente, aiuto, overleg, gebruiker, sjabloon, dyskusja, wikipedysta, szablon, pomoc, discussão,
    predefinição, ajuda, обсуждение, участник, википедия, шаблон, справка, ノート, 利用者, テンプレート, användare,
    mall"""
)
DISAMBIGUATION_TEMPLATES = _names(
    """dab, disamb, disambig, disambiguation, hndis, hndis-cleanup, hndab, geodis, geodab, schooldis, schooldab,
    hospitaldis, roaddis, mathdab, mathdis, numberdis, letterdis, letter-numbercombdisambig, letter-numbercombdab,
    airportdis, callsigndis, biodab, stationdis, templedis, begriffsklärung, homonymie, desambiguación, desambiguação,
    desambig, disambigua, ujednoznacznienie, неоднозначность, неоднозначність, 曖昧さ回避, aimai, förgrening,
    täsmennyssivu, rozcestník, egyértelmű, anlam ayrımı, توضيح, ابهام‌زدایی, פירושונים, 동음이의, 消歧义, 消歧義,
    desambiguació, dezambiguizare, flertydig"""
)

_INVISIBLE_NAMESPACES = FILE_NAMES | CATEGORY_NAMES
_MEDIA_TARGET = re.compile(
    r"[^|\]:]+:[^|]+\.(?:jpe?g|png|svg|gif|tiff?|og[agv]|oga|webm|webp|pdf|djvu|mid|flac|wav)\s*", re.IGNORECASE
)
# [[de:Anarchismus]] names the article in another language. Longer prefixes are sister projects, whose links are read.
_LANGUAGE_PREFIX = re.compile(r"[a-z]{2,3}(?:-[a-z]{2,8}){0,2}|simple")
_PROJECT_PREFIXES = frozenset({"mw", "wmf", "rfc", "wp", "doi"})
_MAX_TARGET_CHARACTERS = 255  # of a title, in MediaWiki; what is longer is no link
# The pipe trick: [[Project:Boston, Massachusetts|]] reads "Boston", [[Pipe (computing)|]] "Pipe".
_PIPE_TRICK = re.compile(r"(?:[^:]*:)?(.*?)(?:\s*\([^()]*\)|,.*)?")


def link_text(content: str) -> str:
    """The visible text of `[[content]]`: its label or target; nothing for files, categories and other languages.

    A leading colon (`[[:File:Example.png]]`) makes a link to a file or category a visible one.
    """
    target, has_label, label = content.partition("|")
    if "\n" in target or len(target) > _MAX_TARGET_CHARACTERS:
        return content
    target = target.strip()
    prefix, colon, rest = target.partition(":")
    if colon and prefix:
        prefix = prefix.strip().replace("_", " ")
        if prefix.lower() in _INVISIBLE_NAMESPACES or _MEDIA_TARGET.fullmatch(target):
            return ""
        is_language = _LANGUAGE_PREFIX.fullmatch(prefix) and prefix not in _PROJECT_PREFIXES
        if is_language and rest and not rest[0].isspace():
            return ""
    target = target.removeprefix(":")
    if has_label:
        return label if label.strip() else _PIPE_TRICK.fullmatch(target).group(1)
    return target
